"""Attacks and robustness measurements on any network from [0, 1] pixels to logits."""

from lmsweep.attacks.curve import Curve, attack_curve, transfer_curves, transfer_matrix
from lmsweep.attacks.families import FGSM, IFGSM, PGD, GaussianNoise, RandomSearch
from lmsweep.attacks.fast_gradient import fgsm, ifgsm
from lmsweep.attacks.gaussian import gaussian_noise
from lmsweep.attacks.projected_gradient import pgd
from lmsweep.attacks.signal_to_noise import scale_to_snr, snr
from lmsweep.attacks.square_search import random_search

__all__ = [
    "FGSM",
    "IFGSM",
    "PGD",
    "Curve",
    "GaussianNoise",
    "RandomSearch",
    "attack_curve",
    "fgsm",
    "gaussian_noise",
    "ifgsm",
    "pgd",
    "random_search",
    "scale_to_snr",
    "snr",
    "transfer_curves",
    "transfer_matrix",
]
