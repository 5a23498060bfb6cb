"""Attacks and robustness measurements on any network from [0, 1] pixels to logits."""

from lmsweep.attacks.apgd import APGD, apgd
from lmsweep.attacks.attack import Attack, Clean, Strengths
from lmsweep.attacks.ensemble import Ensemble
from lmsweep.attacks.fgsm import FGSM, fgsm
from lmsweep.attacks.gaussian import GaussianNoise, gaussian_noise
from lmsweep.attacks.ifgsm import IFGSM, ifgsm
from lmsweep.attacks.measures import masking
from lmsweep.attacks.measures.curve import Curve, attack_curve, transfer_curves, transfer_matrix
from lmsweep.attacks.minimal import MinimalNorm
from lmsweep.attacks.pgd import PGD, pgd
from lmsweep.attacks.search import RandomSearch, random_search
from lmsweep.attacks.trajectory import Examples, scale_to_snr, snr, unsettled

__all__ = [
    "APGD",
    "FGSM",
    "IFGSM",
    "PGD",
    "Attack",
    "Clean",
    "Curve",
    "Ensemble",
    "Examples",
    "GaussianNoise",
    "MinimalNorm",
    "RandomSearch",
    "Strengths",
    "apgd",
    "attack_curve",
    "fgsm",
    "gaussian_noise",
    "ifgsm",
    "masking",
    "pgd",
    "random_search",
    "scale_to_snr",
    "snr",
    "transfer_curves",
    "transfer_matrix",
    "unsettled",
]
