"""The audit of a network from outside: one command from a class, a state dict and images to a page."""

import json
import re

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn

from lmsweep.config.evaluation import OwnAuditConfig, parse_as
from lmsweep.config.hydra import config_folder
from lmsweep.errors import ConfigError, UserError
from lmsweep.evaluation.own import load_images, load_network
from lmsweep.models.common import Standardise
from tests.evaluation.test_commands import command

FEW = (
    *(
        "samples=40",
        "thresholds.gap=0.15",
        "epsilons=[0.1,0.2]",
        "alpha=0.02",
        "attack.apgd_steps=15",
        "attack.targets=1",
    ),
    *("attack.minimal_steps=10", "attack.queries=20"),
)


class Linear(nn.Module):
    """A network that somebody else wrote, and a factor that can hide its gradient."""

    def __init__(self, factor: float = 1.0):
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.factor = factor

    def forward(self, x):
        return self.factor * self.layer(x.flatten(1))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Trained weights, as several devices leave them, and images of the digits."""
    folder = tmp_path_factory.mktemp("own")
    bunch = load_digits()
    x, y = (bunch.images / 16).astype(np.float32), bunch.target
    np.savez(folder / "digits.npz", x=x[:60], y=y[:60])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Linear()
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    images, labels = torch.from_numpy(x), torch.from_numpy(y)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
    torch.save({f"module.{name}": value for name, value in net.state_dict().items()}, folder / "net.pt")
    return folder


def composed_own(*overrides):
    with initialize_config_dir(config_folder(), version_base="1.3"):
        return OmegaConf.to_container(compose("audit_own", list(overrides)), resolve=True)


def request(folder, *keys):
    words = ("model=own", "model._target_=tests.evaluation.test_own_audit.Linear")
    given = composed_own(*words, f"images={folder}/digits.npz", *keys)
    return parse_as(OwnAuditConfig, given)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "consistent"), (1e5, "gradients masked")])
def test_one_command_judges_a_network_and_writes_a_page(files, factor, verdict):
    page = files / f"page{factor:g}"
    done = command(
        "audit",
        *("model=own", "model._target_=tests.evaluation.test_own_audit.Linear", f"+model.factor={factor}"),
        *(f"weights={files}/net.pt", f"images={files}/digits.npz", f"page={page}", *FEW),
        outputs=files,
    )
    assert done.returncode == 0, done.stderr
    assert f"Verdict: {verdict}" in done.stdout
    assert done.stdout.split()[-1] == str(page / "index.html")
    results = json.loads((page / "audit.json").read_text())
    assert results["verdict"] == verdict
    assert results["evidence"]["samples"] == 40
    assert results["evidence"]["clean"] > 0.9
    html = (page / "index.html").read_text()
    assert verdict in html
    assert "APGD, targeted DLR" in html
    assert len(re.findall(r'src="data:image/png;base64,\w', html)) == 2
    assert "http" not in html
    assert not list(files.glob("evaluations"))


def test_images_of_files_have_their_classes_from_folders_or_names(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 20, 30, 3), dtype=np.uint8)
    for name, number in (("cat", 0), ("dog", 1)):
        (tmp_path / "named" / name).mkdir(parents=True)
        Image.fromarray(pixels[number]).save(tmp_path / "named" / name / "a.png")
    (tmp_path / "numbered" / "7").mkdir(parents=True)
    Image.fromarray(pixels[2]).save(tmp_path / "numbered" / "7" / "a.png")
    Image.fromarray(pixels[0]).save(tmp_path / "photo_00_243.png")
    Image.fromarray(pixels[1]).save(tmp_path / "other_00_3.png")
    x, y = load_images(str(tmp_path / "named"), None)
    assert y.tolist() == [0, 1]
    torch.testing.assert_close(x, torch.from_numpy(pixels[:2]).permute(0, 3, 1, 2).float() / 255)
    assert load_images(str(tmp_path / "numbered"), None)[1].tolist() == [7]
    x, y = load_images(str(tmp_path / "photo_*.png"), 16)
    assert (x.shape, y.tolist()) == ((1, 3, 16, 16), [243])
    Image.fromarray(pixels[2, :5]).save(tmp_path / "photo_01_4.png")
    with pytest.raises(UserError, match="have several sizes"):
        load_images(str(tmp_path / "photo_*.png"), None)
    with pytest.raises(UserError, match="names no images"):
        load_images(str(tmp_path / "nothing_*.png"), None)


def test_mean_and_std_come_before_the_network(files):
    network = load_network(request(files, f"weights={files}/net.pt", "mean=[0.5]", "std=[0.25]"))
    plain = load_network(request(files, f"weights={files}/net.pt"))
    assert isinstance(network[0], Standardise)
    x = torch.rand(3, 1, 8, 8)
    torch.testing.assert_close(network(x), plain((x - 0.5) / 0.25))


def test_what_does_not_fit_is_said_in_a_sentence(files):
    with pytest.raises(UserError, match=r"is missing: weights must be a file of torch\.save"):
        load_network(request(files, "weights=nowhere.pt"))
    with pytest.raises(ConfigError, match="mean and std must both"):
        load_network(request(files, "mean=[0.5]"))
    torch.save({"layer.weight": torch.zeros(3, 3)}, files / "bad.pt")
    with pytest.raises(UserError, match="does not fit tests"):
        load_network(request(files, f"weights={files}/bad.pt"))
