"""A store as one file, and back."""

import json
import zipfile
from pathlib import Path

import pytest

from lmsweep.errors import UserError
from lmsweep.store.housekeeping import pack, unpack
from lmsweep.store.store import Store
from lmsweep.store.sweeps import record_sweep

RUNS = ("0123456789ab", "123456789abc", "23456789abcd")


@pytest.fixture
def outputs(tmp_path):
    """Two finished runs with weights, an evaluation of the first, and a run that is not finished."""
    root = tmp_path / "outputs"
    for name in RUNS:
        folder = Store(root).lease(name, {"seed": 1}, {"method": "xent"})
        (folder.path / "checkpoint.ckpt").write_bytes(b"weights")
        if name != RUNS[2]:
            folder.finish({"seconds": 1.0, "metrics": {"test_accuracy": 0.5}})
    attack = Store(root, "evaluations").lease("abcdefabcdef", {"targets": [RUNS[0]]}, {"kind": "attack"})
    attack.finish({"seconds": 1.0})
    record_sweep(root, RUNS[:2], "mine", None)
    return root


def contents(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.mark.parametrize("weights", [False, True])
def test_what_is_packed_comes_out_again(outputs, tmp_path, weights):
    archive, there = tmp_path / "all.zip", tmp_path / "there"
    assert pack(outputs, archive, weights=weights) == 2
    assert unpack(archive, there) == (3, 0)
    expected = {name: data for name, data in contents(outputs).items() if RUNS[2] not in name}
    if not weights:
        expected = {name: data for name, data in expected.items() if not name.endswith(".ckpt")}
    assert contents(there) == expected
    assert Store(there).folder(RUNS[0]).read_results() == Store(outputs).folder(RUNS[0]).read_results()


def test_a_part_is_packed_with_its_evaluations_only(outputs, tmp_path):
    assert pack(outputs, tmp_path / "part.zip", [RUNS[1]]) == 1
    assert unpack(tmp_path / "part.zip", tmp_path / "there") == (1, 0)
    with pytest.raises(UserError, match="no finished run"):
        pack(outputs, tmp_path / "none.zip", [RUNS[2]])
    assert not (tmp_path / "none.zip").exists()


def test_unpacking_never_overwrites(outputs, tmp_path):
    pack(outputs, tmp_path / "all.zip")
    (outputs / "runs" / RUNS[0] / "results.json").write_text("mine")
    before = contents(outputs)
    assert unpack(tmp_path / "all.zip", outputs) == (0, 3)
    assert contents(outputs) == before


def forged(path: Path, files: dict[str, bytes], listed: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("manifest.json", json.dumps(listed))
        for name, data in files.items():
            packed.writestr(name, data)
    return path


@pytest.mark.parametrize(
    ("files", "listed", "reason"),
    [
        ({"runs/0123456789ab/results.json": b"x"}, {"runs/0123456789ab/results.json": "0"}, "was changed"),
        ({"../evil.json": b"x"}, {"../evil.json": "0"}, "no file of a store"),
        ({"runs/../../evil": b"x"}, {"runs/../../evil": "0"}, "no file of a store"),
        ({"/etc/evil": b"x"}, {"/etc/evil": "0"}, "no file of a store"),
        ({"runs/0123456789ab/a": b"x"}, {}, "not those of its list"),
    ],
)
def test_a_forged_archive_adds_nothing(tmp_path, files, listed, reason):
    archive = forged(tmp_path / "forged.zip", files, listed)
    with pytest.raises(UserError, match=reason):
        unpack(archive, tmp_path / "there")
    assert list(tmp_path.rglob("*")) == [archive, tmp_path / "there"]
    archive.write_bytes(archive.read_bytes()[:-10])
    with pytest.raises(UserError, match="no archive of `lmsweep store pack`"):
        unpack(archive, tmp_path / "there")
