"""Adversarial training: part of every batch is replaced by examples made on the network as it stands.

`fgsm` follows Kurakin et al. (2017, "Adversarial machine learning at scale"): half of the batch, each sample
with an epsilon of its own from a normal distribution cut off at the largest one, and the predicted class in
place of the label. An FGSM step computed from the true label leaks it: the network learns to read the
answer from the pattern of signs and ends up better on adversarial than on clean images. They weigh
adversarial samples by 0.3; here clean and adversarial samples weigh the same, because the batch then stays a
batch and any loss on it (cross-entropy, hinge, margin) applies as it is. `pgd` follows Madry et al. (2018):
the whole batch, a random start, 40 steps of 0.01 inside epsilon 0.3 for MNIST.
"""

from typing import Any, Literal

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from lmsweep.attacks.fgsm import fgsm_direction
from lmsweep.attacks.pgd import pgd_examples
from lmsweep.attacks.trajectory import AttackLoss, per_sample, project
from lmsweep.margin.callback import ReversibleCallback
from lmsweep.margin.temporary import frozen
from lmsweep.seeds import ALL, Share, derive_seed, to_device


def truncated_normal(count: int, largest: float, generator: torch.Generator) -> Tensor:
    """Draw from a normal distribution of mean 0 and deviation largest / 2, restricted to [0, largest].

    Kurakin et al. draw epsilon so (up to 16 of 255, deviation 8), because a network trained on a single
    epsilon is robust against that one only.
    """
    top = torch.special.ndtr(torch.tensor(2.0, dtype=torch.float64))
    uniform = torch.rand(count, generator=generator, dtype=torch.float64)
    return (largest / 2 * torch.special.ndtri(0.5 + uniform * (top - 0.5))).float()


def adversarial_batch(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    kind: Literal["fgsm", "pgd"],
    epsilon: float,
    fraction: float,
    seed: int,
    random_epsilon: bool = False,
    label: Literal["given", "predicted"] = "given",
    loss: AttackLoss = "xent",
    alpha: float = 0.01,
    steps: int = 40,
    share: Share = ALL,
) -> Tensor:
    """Return `x` with its first `fraction` replaced by adversarial examples made on `model`.

    Batches are shuffled, so the first samples are random ones. The network runs in evaluation mode: its
    dropout draws nothing and batch norm keeps its statistics. Random numbers depend on `seed` alone. When
    `x` is a `share` of the batch, what happens to its samples is what happens to them in the whole.
    """
    total = round(fraction * share.whole(len(x)))
    count = share.first(total)
    if count == 0:
        return x
    part, labels = x[:count], y[:count]
    with frozen(model):
        if label == "predicted":
            with torch.no_grad():
                labels = model(part).argmax(1)
        if kind == "pgd":
            found = pgd_examples(
                model,
                part,
                labels,
                epsilon=epsilon,
                alpha=alpha,
                steps=steps,
                seed=seed,
                loss=loss,
                share=share,
            )
            changed = found.x
        else:
            size: float | Tensor = epsilon
            if random_epsilon:
                generator = torch.Generator().manual_seed(derive_seed(seed, "epsilon"))
                drawn = share.of(truncated_normal(total, epsilon, generator))
                size = per_sample(to_device(drawn, x.device).to(x.dtype), x)
            sign, _ = fgsm_direction(model, part, labels, loss=loss, targeted=False)
            changed = project(part + size * sign, part, size, clip_pixels=True)
    return torch.cat([changed, x[count:]])


class AdversarialTraining(ReversibleCallback):
    """Make part of every training batch adversarial before `training_step` sees it.

    The batch is changed where Lightning hands it to the module, so that whatever wraps the step, such as
    `MarginLoss`, sees the one forward pass on the adversarial batch and none of the attack's. The attack runs
    on the inner `network`. Arguments are those of `adversarial_batch`; the examples of a step depend on the
    run's seed and the step's number only, so a resumed run makes the same ones.
    """

    def __init__(self, *, seed: int, **options: Any) -> None:
        super().__init__()
        self.seed = seed
        self.options = options

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Replace the hook through which Lightning hands batches to the module."""
        handed_on = pl_module.on_after_batch_transfer
        network = pl_module.network
        if not isinstance(network, nn.Module):
            raise TypeError(f"{type(pl_module).__name__}.network is no torch.nn.Module to attack")

        def on_after_batch_transfer(batch: Any, dataloader_idx: int) -> Any:
            batch = handed_on(batch, dataloader_idx)
            if not trainer.training:
                return batch
            x, y, *rest = batch
            seed = derive_seed(self.seed, f"adversarial/{trainer.global_step}")
            share = Share(trainer.global_rank, trainer.world_size)
            return adversarial_batch(network, x, y, seed=seed, share=share, **self.options), y, *rest

        self.replace(pl_module, "on_after_batch_transfer", on_after_batch_transfer)
