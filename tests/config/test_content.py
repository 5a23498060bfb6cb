"""A run's identity contains the content that the run depends on: data files and the user's own code."""

import os
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from lmsweep.commands.jobs import run_training
from lmsweep.commands.store import status_command
from lmsweep.config import identity
from lmsweep.config.hydra import config_folder
from lmsweep.config.identity import digest, own_module
from lmsweep.config.run import RunConfig, split
from lmsweep.errors import ConfigError
from lmsweep.training.build import build_data

LOADER = """
import torch
from lmsweep.data import Source, Split

def load():
    x = torch.rand(60, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    y = torch.arange(60) % 3
    return Source(Split(x, y), Split(x, y), num_classes=3, validation_size=20)
"""
MODEL = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(64, num_classes))
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write_arrays(path: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    x, y = draw.random((60, 8, 8), dtype=np.float32), np.arange(60) % 3
    np.savez(path, x=x, y=y, x_test=x, y_test=y)


def configured(folder: Path, *keys: str) -> RunConfig:
    """The run that the command line would make of `keys`, with `folder` as the data folder."""
    with initialize_config_dir(config_folder(), version_base="1.3"):
        words = ["method=xent", "trainer.max_steps=2", "trainer.val_every=2", f"data.root={folder}", *keys]
        plain = OmegaConf.to_container(
            compose("config", [*words, f"outputs={folder / 'outputs'}"]), resolve=True
        )
    return split(plain)[0]


def status(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    status_command(["--outputs", str(folder / "outputs")])
    return {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}


def test_rewritten_arrays_are_another_run_and_status_names_them(tmp_path, capsys):
    keys = (
        "data.source._target_=lmsweep.data.arrays.load",
        "+data.source.file=mine.npz",
        "+data.source.validation_size=20",
        "model.width=2",
    )
    write_arrays(tmp_path / "mine.npz", seed=0)
    first = configured(tmp_path, *keys)
    assert configured(tmp_path, *keys).id == first.id
    run_training(first)
    write_arrays(tmp_path / "mine.npz", seed=1)
    second = configured(tmp_path, *keys)
    assert second.id != first.id
    run_training(second)
    told = status(tmp_path, capsys)
    assert told[first.id].endswith("(data.source.file=mine.npz has changed since)")
    assert "changed" not in told[second.id]
    with pytest.raises(ConfigError, match=f"file=mine.npz has changed since run {first.id} was configured"):
        build_data(first)
    write_arrays(tmp_path / "mine.npz", seed=0)
    assert configured(tmp_path, *keys).id == first.id


def test_edited_classes_and_loaders_are_another_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text(MODEL)
    (tmp_path / "loader.py").write_text(LOADER)
    keys = ("data.source._target_=loader.load", "model=own", "model._target_=mine.Net")
    first = configured(tmp_path, *keys)
    assert first.changed_content() == []
    ids = {first.id}
    for name, text in (("mine.py", MODEL), ("loader.py", LOADER)):
        (tmp_path / name).write_text(text + "# edited\n")
        ids.add(configured(tmp_path, *keys).id)
    assert len(ids) == 3
    assert first.changed_content() == ["data.source._target_=loader.load", "model._target_=mine.Net"]


def test_installed_classes_and_ours_have_no_content():
    for target in (
        "torch.optim.SGD",
        "lmsweep.models.ConvNet",
        "torchvision.models.resnet18",
        "os.path.join",
    ):
        assert own_module(target) is None
    assert own_module("tests.sweep.raising.Raising") == Path(__file__).parents[1] / "sweep" / "raising.py"
    assert own_module("no.such.module") is None


def test_a_folder_is_known_by_the_content_of_its_files(tmp_path, monkeypatch):
    folder = tmp_path / "images"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "1.png").write_bytes(b"one")
    monkeypatch.setattr(identity, "SETTLED_SECONDS", 1e-9)  # no answer stands
    seen = {digest(folder)}
    (folder / "a" / "1.png").write_bytes(b"two")  # of the same size
    seen.add(digest(folder))
    (folder / "a" / "1.png").rename(folder / "a" / "2.png")
    seen.add(digest(folder))
    assert len(seen) == 3
    monkeypatch.setattr(identity, "READ_AT_MOST", 2)
    large = digest(folder)
    (folder / "a" / "2.png").write_bytes(b"three")
    assert digest(folder) != large


def test_a_settled_file_is_read_once(tmp_path, monkeypatch):
    path = tmp_path / "mine.npz"
    path.write_bytes(b"content")
    os.utime(path, (1e9, 1e9))
    first = digest(path)
    monkeypatch.setattr(identity, "sha256_of", lambda file: pytest.fail(f"{file} was read again"))
    assert digest(path) == first
    monkeypatch.undo()
    path.write_bytes(b"CONTENT")
    os.utime(path, (1e9 + 1, 1e9 + 1))
    assert digest(path) != first
    (tmp_path / "cache" / "lmsweep" / "content.json").write_text("[damaged")
    assert digest(path) != first
