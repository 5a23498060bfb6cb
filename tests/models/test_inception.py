"""Inception v3: torchvision's at full size, smaller ones that train, and the auxiliary head in the loss."""

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from lmsweep.margin.layers import resolve_layers
from lmsweep.models import InceptionV3
from lmsweep.training.module import Classifier
from tests.models.activations import parameters, shapes


@pytest.fixture(scope="module")
def full() -> InceptionV3:
    torch.manual_seed(0)
    return InceptionV3((3, 75, 75), 10, aux_weight=0.4)


def small(shape=(3, 75, 75), num_classes=5, **options) -> InceptionV3:
    return InceptionV3(shape, num_classes, width=1 / 16, **({"aux_weight": 0.4} | options))


def twin(model: InceptionV3) -> nn.Module:
    """torchvision's own network with the same weights."""
    with torch.device("meta"):
        reference = torchvision.models.Inception3(10, init_weights=False)
    reference.load_state_dict(model.state_dict(), assign=True)
    return reference


def test_at_full_size_it_is_torchvisions(full):
    with torch.device("meta"):
        assert parameters(InceptionV3((3, 299, 299), 1000, aux_weight=0.4)) == 27_161_264
    x = torch.rand(2, 3, 299, 299)
    reference = twin(full)
    with torch.no_grad():
        torch.testing.assert_close(full.eval()(x), reference.eval()(x))
        feature_map = torch.rand(2, 768, 17, 17)
        torch.testing.assert_close(full.AuxLogits(feature_map), reference.AuxLogits(feature_map))


def test_one_step_at_75x75_trains_with_the_auxiliary_loss(full):
    module = Classifier(full, xent_weight=1.0, optimizer=lambda p: torch.optim.SGD(p, lr=0.01)).train()
    x, y = torch.rand(4, 3, 75, 75), torch.tensor([0, 1, 2, 3])
    before = {name: p.detach().clone() for name, p in full.named_parameters()}
    optimizer = module.configure_optimizers()
    loss = module.training_step((x, y), 0)
    loss.backward()
    optimizer.step()
    moved = [name for name, p in full.named_parameters() if not torch.equal(p, before[name])]
    assert {"AuxLogits.fc.weight", "fc.weight", "Conv2d_1a_3x3.conv.weight"} <= set(moved)
    assert torch.isfinite(loss)


def test_the_loss_is_the_criterion_plus_the_weighted_one_of_the_head():
    for weight in (0.0, 0.4):
        torch.manual_seed(0)
        net = small(aux_weight=weight, dropout=0.0)
        module = Classifier(net, xent_weight=0.5, optimizer=torch.optim.SGD).train()
        x, y = torch.rand(6, 3, 75, 75), torch.arange(6) % 5
        logits, auxiliary = net(x)
        expected = 0.5 * (F.cross_entropy(logits, y) + weight * F.cross_entropy(auxiliary, y))
        torch.testing.assert_close(module.training_step((x, y), 0), expected)


def test_evaluation_gives_logits_alone():
    out = small().eval()(torch.rand(2, 3, 80, 90))
    assert isinstance(out, torch.Tensor)
    assert out.shape == (2, 5)


def test_layers_keep_torchvisions_names():
    model = small()
    found = shapes(model, torch.rand(2, 3, 75, 75))
    assert found["Conv2d_1a_3x3"] == (2, 37, 37)
    assert found["Mixed_6e"] == (48, 3, 3)
    assert found["Mixed_7c"] == (128, 1, 1)
    assert resolve_layers(model, "Mixed_6*") == [f"Mixed_6{letter}" for letter in "abcde"]
    assert len(model.layer_names) == 16


@pytest.mark.parametrize("width", [1 / 16, 1 / 8, 1 / 2])
def test_narrow_networks_have_all_channels_scaled(width):
    with torch.device("meta"):
        narrow, wide = (InceptionV3((3, 75, 75), 10, aux_weight=0.4, width=w) for w in (width, 1.0))
    for (name, one), (_, two) in zip(narrow.named_parameters(), wide.named_parameters(), strict=True):
        expected = [
            side if side in (3, 10) or dim > 1 else side * width for dim, side in enumerate(two.shape)
        ]
        assert list(one.shape) == expected, name


def test_small_gray_images_are_scaled_and_repeated_inside():
    torch.manual_seed(0)
    model = small((1, 8, 8), size=75, input_mean=[0.5], input_std=[0.5]).eval()
    x = torch.rand(3, 1, 8, 8, requires_grad=True)
    logits = model(x)
    colour = F.interpolate(x.repeat(1, 3, 1, 1) * 2 - 1, size=(75, 75), mode="bilinear")
    plain = small().eval()
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(logits, plain(colour))
    logits.sum().backward()
    assert x.grad.abs().sum() > 0
    assert len(model.train()(x)) == 2


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"model\.size=75"):
        small((3, 32, 32))
    with pytest.raises(ValueError, match=r"model\.size=75"):
        small(size=60)
    with pytest.raises(ValueError, match="1/16"):
        InceptionV3((3, 75, 75), 10, aux_weight=0.4, width=0.1)
