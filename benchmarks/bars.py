"""Every row of the suite by its name, and how fast it must be; a row without a bar is only reported."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Bar:
    """What a row is held to."""

    relation: Literal["<=", ">="]
    limit: float

    def met(self, value: float) -> bool:
        """Whether a measured value is on the right side; what is no number is not."""
        return value <= self.limit if self.relation == "<=" else value >= self.limit

    def __str__(self) -> str:
        return f"{self.relation} {self.limit:g}"


def at_most(limit: float) -> Bar:
    """A bar that the value must not exceed."""
    return Bar("<=", limit)


def at_least(limit: float) -> Bar:
    """A bar that the value must reach."""
    return Bar(">=", limit)


# The first word of a name is the module of this folder that measures it.
BARS: dict[str, Bar | None] = {
    # A step is forward pass, loss and backward pass; all of these are times of a cross-entropy step.
    "margin_steps/mnist, 9 classes": at_most(3.3),
    "margin_steps/mnist, 9 classes, a call per layer and class": None,
    "margin_steps/mnist, 9 classes, at the input too": at_most(4.2),
    "margin_steps/mnist, sampled class": at_most(1.30),
    "margin_steps/mnist, sampled class, at the input too": at_most(1.45),
    "margin_steps/wide_resnet, even:5, sampled class": at_most(1.5),
    # A cross-entropy step of the narrow network, in times of the same without what makes it fast.
    "margin_steps/mnist, quarter width, cross-entropy": at_most(0.75),
    "margin_steps/mnist, best-scored class": at_most(1.40),
    "margin_steps/mnist, best-scored class, a call per layer and class": None,
    "margin_steps/wide_resnet, even:5, best-scored class": at_most(1.6),
    "margin_steps/wide_resnet, even:5, best-scored class, a call per layer and class": None,
    "margin_steps/inception_v3, best-scored class": None,
    "margin_steps/mnist, inference": None,  # of a network that margin steps have changed
    # A step of each method with the options of figX_methods, in times of a cross-entropy step.
    "method_steps/mnist, hinge": None,
    "method_steps/mnist, margin_l2_all": None,
    "method_steps/mnist, margin_linf_all": None,
    "method_steps/mnist, output_margin": None,
    "method_steps/mnist, soft_margin": None,
    "method_steps/mnist, liu": None,
    "method_steps/mnist, bootstrapping": None,
    "method_steps/mnist, gce": None,
    "method_steps/mnist, sce": None,
    "method_steps/mnist, jacobian": None,
    "method_steps/mnist, cross_lipschitz": None,
    "method_steps/mnist, input_gradient": None,
    "method_steps/mnist, parseval": None,
    "method_steps/mnist, xent+pgd": None,
    "method_steps/mnist, trades": None,
    "method_steps/mnist, mma": None,
    # Times of the first-order step, or of cross-entropy where a row says so, and peak megabytes of a process
    # that makes steps of each kind.
    "exact_mode/mnist, 9 classes": None,
    "exact_mode/mnist, best-scored class": None,
    "exact_mode/mnist, sampled class, of cross-entropy": at_most(1.9),
    "exact_mode/wide_resnet, sampled class, of cross-entropy": None,
    "exact_mode/memory, cross-entropy": None,
    "exact_mode/memory, first order, 9 classes": None,
    "exact_mode/memory, exact, 9 classes": None,
    # Steps per second of a run, in those of a loop written by hand.
    "training_loop/mnist": at_least(0.95),
    "training_loop/digits": at_least(0.85),
    "training_loop/mnist, margin": None,
    "training_loop/digits, margin": None,
    # Samples per second, in those of the faster of two DataLoaders.
    "batches/in memory": at_least(10),
    # Times of foolbox's curve.
    "attack_curves/ifgsm": at_most(1.0),
    "attack_curves/ifgsm, early stop": None,
    "attack_curves/ifgsm, least steps, one path for all epsilons": None,
    # Seconds per run beside its training, and the same in times of the faster of two other ways.
    "sweep_overhead/seconds per run": None,
    "sweep_overhead/of joblib and processes": at_most(0.35),
    # Seconds, and times of a process that imports torch, measured in turn, where a bar must hold anywhere.
    "store/status of 20,000 runs": at_most(3),
    "store/2,000 runs that are all cached": at_most(5),
    "store/plan of 50,000 combinations": at_most(30),
    "store/figure with everything cached": at_most(4),
    "store/points of 10,000 runs": at_most(1.5),
    "start_up/help": at_most(1),
    "start_up/run that is done already": at_most(1.5),
}
