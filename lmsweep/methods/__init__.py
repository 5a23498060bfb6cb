"""What trains a network beside cross-entropy and the margin: one file per family (docs/methods.md)."""

from lmsweep.methods.method import Method, Step, method_class, method_names

__all__ = ["Method", "Step", "method_class", "method_names"]
