"""Small networks trained on the digits, shared by all tests of attacks."""

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn


class Scaled(nn.Module):
    """A network whose logits are multiplied: the same decisions, another confidence."""

    def __init__(self, network: nn.Module, factor: float) -> None:
        super().__init__()
        self.network = network
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * self.network(x)


class Counter(nn.Module):
    """Counts the samples that go through a network, and those whose gradient is wanted."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.forwards = self.gradients = 0

    def forward(self, x: Tensor) -> Tensor:
        self.forwards += len(x)
        self.gradients += len(x) * x.requires_grad
        return self.network(x)


def make_net(width: int = 8) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * width, 4 * width),
        nn.ReLU(),
        nn.Linear(4 * width, 10),
    )


def train_net(x: Tensor, y: Tensor, seed: int, steps: int = 200) -> nn.Module:
    # Isolated, so that what other tests draw cannot change these networks.
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), 0.03, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = torch.randint(0, len(x), (64,), generator=generator)
        loss = F.cross_entropy(net(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    optimizer.zero_grad()
    return net.eval()


@pytest.fixture(scope="session")
def digits() -> tuple[Tensor, Tensor]:
    bunch = load_digits()
    order = torch.randperm(len(bunch.target), generator=torch.Generator().manual_seed(0))
    x = torch.from_numpy(bunch.images / 16.0).float().unsqueeze(1)
    return x[order], torch.from_numpy(bunch.target).long()[order]


@pytest.fixture(scope="session")
def test_set(digits) -> tuple[Tensor, Tensor]:
    return digits[0][:200], digits[1][:200]


@pytest.fixture(scope="session")
def nets(digits) -> list[nn.Module]:
    """Three networks that differ in their seed."""
    x, y = digits
    return [train_net(x[500:], y[500:], seed) for seed in range(3)]


@pytest.fixture(scope="session")
def net(nets) -> nn.Module:
    return nets[0]
