"""How long a run will take, from a few of its steps."""

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from lmsweep.config.run import CONSTANT, NO_TELEMETRY, RunConfig
from lmsweep.data import Split
from lmsweep.training.build import build_telemetry
from lmsweep.training.evaluate import evaluate
from lmsweep.training.run import Parts, prepare_run, run

# Steps are added to the probe as long as it stays about this short.
BUDGET_SECONDS = 3.0
MOST_STEPS = 20
SAMPLES = 500  # in the splits of the probe: enough to time an evaluation, which is then scaled up


def probe_seconds(config: RunConfig) -> float:
    """Estimate the seconds of a whole run; trains a few steps in a temporary folder and forgets them."""
    job = prepare_run(config)
    sizes = {name: len(getattr(job.data, name)) for name in ("train", "val", "test")}
    one = _short_run(config, 1)
    if one < BUDGET_SECONDS:
        one = _short_run(config, 1)  # the first steps of a process are slow
    more = max(1, min(MOST_STEPS, int(BUDGET_SECONDS / one)))
    step = max(0.0, (_short_run(config, 1 + more) - one) / more)
    few = _few(job.data.val)
    sample = _seconds(lambda: evaluate(job.module, few)) / len(few)
    trainer = config.trainer
    evaluated = (trainer.max_steps // trainer.val_every) * sizes["val"] + sum(sizes.values())
    total = one + step * (trainer.max_steps - 1) + sample * evaluated
    telemetry = build_telemetry(config, job.module, job.data)
    if telemetry is None:
        return total
    measurements = 1 + math.ceil(trainer.max_steps / config.telemetry.every)
    return total + measurements * _seconds(lambda: telemetry.measure(job.module))


def _short_run(config: RunConfig, steps: int) -> float:
    trainer = config.trainer.model_copy(update={"max_steps": steps, "val_every": steps})
    tracking = config.tracking.model_copy(update={"name": "none"})
    update = {"trainer": trainer, "tracking": tracking, "telemetry": NO_TELEMETRY, "schedule": CONSTANT}
    job = _with_few_samples(prepare_run(config.model_copy(update=update)), trainer.batch_size)
    with tempfile.TemporaryDirectory() as folder:
        return _seconds(lambda: run(job, "probe", Path(folder)))


def _with_few_samples(job: Parts, batch_size: int) -> Parts:
    data = job.data
    small = dataclasses.replace(
        data, train=_few(data.train, batch_size), val=_few(data.val), test=_few(data.test)
    )
    return dataclasses.replace(job, data=small)


def _few(split: Split, least: int = 1) -> Split:
    return split.select(torch.arange(min(len(split), max(SAMPLES, least))))


def _seconds(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started
