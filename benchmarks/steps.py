"""Training steps to be timed: cross-entropy, our margin loss, and the margin as the authors' code has it."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import lmsweep  # noqa: F401 - guards torchvision, so it comes first

# isort: split
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmsweep.margin import margin_loss
from lmsweep.margin.layers import capture, resolve_layers
from lmsweep.models import ConvNet, InceptionV3, WideResNet

GAMMA, CLIP = 1.0, 2.0


@dataclass(frozen=True)
class Setting:
    """A network, a batch of random images for it, and the layers a margin is measured at."""

    network: nn.Module
    x: Tensor
    y: Tensor
    layers: str | list[str]

    def channels_last(self) -> "Setting":
        """The same in the memory format that runs have."""
        network = self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return replace(self, network=network, x=self.x.contiguous(memory_format=torch.channels_last))

    def captured(self) -> tuple[Tensor, dict[str, Tensor]]:
        """One forward pass: the logits and the layers."""
        names = resolve_layers(self.network, self.layers)
        with capture(self.network, names) as caught:
            logits = self.network(self.x)
        return logits, {name: caught.layers[name] for name in names}


def mnist(batch: int = 128, layers: str | list[str] = "all", width: float = 1.0) -> Setting:
    """The paper's MNIST network, at all layers."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {"channels": [32, 64], "dense": [512, 512], "kernel_size": 5, "pool": [2, 2]}
    net = ConvNet((1, 28, 28), 10, **shape, width=width)
    images, labels = torch.rand(batch, 1, 28, 28), torch.randint(10, (batch,))
    return Setting(net, images, labels, layers).channels_last()


class ReluBeforePooling(nn.Module):
    """The MNIST network as one would write it down: the same function, in torch's usual memory format."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        for name in ("conv1", "conv2"):
            x = F.max_pool2d(F.relu(self.network.get_submodule(f"{name}.0")(x)), 2)
        for name in ("fc1", "fc2"):
            x = F.relu(self.network.get_submodule(f"{name}.1")(x.flatten(1)))
        logits: Tensor = self.network.get_submodule("out")(x)
        return logits


def wide_resnet(batch: int = 32) -> Setting:
    """A WRN-16-2 for images of 32x32, at five layers evenly spaced, as the paper's for CIFAR-10."""
    torch.manual_seed(0)
    net = WideResNet((3, 32, 32), 10, depth=16, width=2)
    images, labels = torch.rand(batch, 3, 32, 32), torch.randint(10, (batch,))
    return Setting(net, images, labels, "even:5").channels_last()


def inception(batch: int = 2) -> Setting:
    """The paper's network for ImageNet, full size, without its auxiliary head, at all layers."""
    torch.manual_seed(0)
    net = InceptionV3((3, 299, 299), 1000, aux_weight=0.4).eval()
    return Setting(net, torch.rand(batch, 3, 299, 299), torch.randint(1000, (batch,)), "all")


def finish(setting: Setting, loss: Tensor) -> Tensor:
    """The backward pass, for weights only as in a run; the loss."""
    setting.network.zero_grad()
    loss.backward(inputs=list(setting.network.parameters()))
    return loss.detach()


def cross_entropy(setting: Setting) -> Tensor:
    """Forward pass, loss, backward pass."""
    return finish(setting, F.cross_entropy(setting.network(setting.x), setting.y))


def margin(
    setting: Setting, top_k: int | None, exact: bool = False, sampled: bool = False, norm: float = 2
) -> Tensor:
    """The same with our margin loss beside cross-entropy."""
    logits, layers = setting.captured()
    more: dict[str, Any] = {"norm": norm}
    if sampled:
        more |= {"generator": torch.Generator().manual_seed(0), "aggregation": "sum"}
    extra = margin_loss(logits, setting.y, layers, gamma=GAMMA, clip=CLIP, top_k=top_k, exact=exact, **more)
    return finish(setting, F.cross_entropy(logits, setting.y) + extra)


def call_per_layer_and_class(setting: Setting, top_k: int | None) -> Tensor:
    """The same loss with a gradient call for each layer and class, as the authors' released code has it.

    It goes through the layers, asks for the gradient of each class difference at that layer alone, and so
    walks from the logits down to the layer every time.
    """
    logits, layers = setting.captured()
    count = logits.shape[1]
    others = logits.detach().scatter(1, setting.y.unsqueeze(1), -torch.inf)
    classes = others.topk(top_k or count - 1, dim=1).indices
    true = logits.gather(1, setting.y.unsqueeze(1)).squeeze(1)
    total = torch.zeros(len(setting.x))
    for layer in layers.values():
        terms = []
        for column in classes.unbind(1):
            difference = true - logits.gather(1, column.unsqueeze(1)).squeeze(1)
            (gradient,) = torch.autograd.grad(difference.sum(), layer, retain_graph=True)
            distance = difference / (1e-6 + gradient.flatten(1).norm(dim=1))
            terms.append((GAMMA - distance).clamp(0.0, CLIP * GAMMA))
        total = total + torch.stack(terms, dim=1).amax(1)
    return finish(setting, F.cross_entropy(logits, setting.y) + total.mean())


def agree(setting: Setting, ways: dict[str, Callable[[], Tensor]]) -> None:
    """Raise unless all ways give one loss and one gradient: what is compared must be the same thing."""
    seen = {}
    for name, way in ways.items():
        loss = way()
        gradients = [p.grad.flatten() for p in setting.network.parameters() if p.grad is not None]
        seen[name] = torch.cat([loss.view(1), *gradients])
    (first, expected), *rest = seen.items()
    for name, values in rest:
        if not torch.allclose(values, expected, rtol=1e-3, atol=1e-5):
            raise RuntimeError(f"{name} and {first} do not compute the same")
