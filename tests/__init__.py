"""Tests, laid out as the package is. Importing it guards torchvision before anything imports Lightning."""

import lmsweep  # noqa: F401 - for what importing it does
