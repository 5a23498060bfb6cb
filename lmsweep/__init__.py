"""Large-margin deep networks as a Hydra sweep platform.

Importing the package is cheap on purpose: nothing here imports torch, so `lmsweep --help`
and commands that only read the store start at once.
"""

from lmsweep import _torchvision

__version__ = "0.1.0"

_torchvision.install()
