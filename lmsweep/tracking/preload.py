"""What W&B imports when it is first used, imported ahead by the server of worker processes."""
# ruff: noqa: F401

import pandas
import requests
import wandb
import wandb.sdk.artifacts.artifact
import wandb.sdk.data_types.table
import wandb.sdk.wandb_init

import lmsweep.tracking.wandb_run
