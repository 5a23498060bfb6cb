"""What the server of the worker processes imports once, so that a run starts in milliseconds.

Everything that a run would import late is here. Nothing may start threads or touch a GPU, because neither
survives a fork.
"""
# ruff: noqa: E402, F401

import gc
import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
# Imports make many objects and hardly any garbage: looking for it took a fifth of the time.
gc.disable()

from rich import live, progress

import lmsweep.data.cifar10
import lmsweep.data.digits
import lmsweep.data.imagenet
import lmsweep.data.mnist
import lmsweep.data.toy
import lmsweep.models
import lmsweep.training.run
from lmsweep.methods import method_names
from lmsweep.provenance import code

lmsweep.data.digits.read()  # took half of the time before a worker trains on them
method_names()  # imports all methods
code()  # asks git

gc.freeze()  # what workers inherit is never garbage, and stays shared memory while the collector skips it
gc.enable()
