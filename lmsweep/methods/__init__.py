"""What trains a network beside cross-entropy and the margin: one file per family (docs/methods.md)."""

from lmsweep.methods.method import Method, Step, linear_layers, method_class, method_names

__all__ = ["Method", "Step", "linear_layers", "method_class", "method_names"]
