"""Files with known content: anything else is refused, and a failed download leaves nothing in place."""

import gzip
import hashlib
import socket
import sys
from pathlib import Path

import pytest

from lmsweep.data.files import KnownFile, download
from lmsweep.errors import UserError
from lmsweep.files import DamagedError

CONTENT = bytes(range(256)) * 40
FILE = KnownFile("numbers", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.mark.parametrize("packed", [False, True])
def test_a_whole_file_is_read_plain_or_packed(tmp_path, packed):
    path = tmp_path / ("numbers.gz" if packed else "numbers")
    path.write_bytes(gzip.compress(CONTENT) if packed else CONTENT)
    assert FILE.find([tmp_path / "empty", tmp_path]) == path
    assert FILE.read(path) == CONTENT


def test_a_plain_file_comes_before_a_packed_one_and_earlier_folders_before_later(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    (tmp_path / "two" / "numbers").write_bytes(CONTENT)
    (tmp_path / "one" / "numbers.gz").write_bytes(gzip.compress(CONTENT))
    assert FILE.find([tmp_path / "one", tmp_path / "two"]) == tmp_path / "one" / "numbers.gz"
    (tmp_path / "one" / "numbers").write_bytes(CONTENT)
    assert FILE.find([tmp_path / "one", tmp_path / "two"]) == tmp_path / "one" / "numbers"
    assert FILE.find([tmp_path]) is None


changed = bytearray(CONTENT)
changed[5000] ^= 1
packed = gzip.compress(CONTENT)
DAMAGED = {
    "cut short": ("numbers", CONTENT[:-1], "10,239 bytes instead of 10,240"),
    "empty": ("numbers", b"", "0 bytes"),
    "too long": ("numbers", CONTENT + b"x", "10,241 bytes"),
    "one bit changed": ("numbers", bytes(changed), "checksum"),
    "packed and cut short": ("numbers.gz", packed[: len(packed) // 2], "unpacked"),
    "packed without its end": ("numbers.gz", packed[:-3], "unpacked"),
    "packed, one bit changed": (
        "numbers.gz",
        packed[:60] + bytes([packed[60] ^ 4]) + packed[61:],
        "numbers.gz",
    ),
    "not packed at all": ("numbers.gz", CONTENT, "unpacked"),
    "something else, packed": ("numbers.gz", gzip.compress(CONTENT[::-1]), "checksum"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_file_is_refused_in_one_sentence(tmp_path, kind):
    name, data, reason = DAMAGED[kind]
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(DamagedError) as caught:
        FILE.read(path)
    sentence = str(caught.value)
    assert reason in sentence
    assert str(path) in sentence
    assert "data=digits" in sentence
    assert "\n" not in sentence


def test_a_download_is_moved_into_place_when_it_is_whole(tmp_path, capsys):
    seen = []

    def fetch(temporary: Path) -> None:
        print("Extracting")
        (temporary / "set" / "raw").mkdir(parents=True)
        (temporary / "set" / "raw" / "numbers").write_bytes(CONTENT)
        seen.append(temporary)

    root = tmp_path / "data"
    download(fetch, root, "set/raw", dataset="numbers", files="numbers")
    assert (root / "set" / "raw" / "numbers").read_bytes() == CONTENT
    assert seen[0].parent == root  # the same file system, so that moving is one step
    assert [path.name for path in root.iterdir()] == ["set"]
    assert capsys.readouterr().out == ""  # stdout is for results


@pytest.mark.parametrize(
    "error", [OSError("no route"), RuntimeError("File not found or corrupted."), EOFError()]
)
def test_a_failed_download_leaves_nothing_and_says_what_to_do(tmp_path, error):
    def fetch(temporary: Path) -> None:
        (temporary / "set").mkdir()
        (temporary / "set" / "numbers").write_bytes(CONTENT[:100])
        raise error

    timeout = socket.getdefaulttimeout()
    with pytest.raises(UserError) as caught:
        download(fetch, tmp_path, "set", dataset="numbers", files="one, two and three")
    sentence = str(caught.value)
    for part in ("data=numbers", "one, two and three", str(tmp_path / "set"), "LMSWEEP_DATA", "data=digits"):
        assert part in sentence
    assert list(tmp_path.iterdir()) == []
    assert socket.getdefaulttimeout() == timeout


def test_an_interrupted_download_leaves_nothing(tmp_path):
    def fetch(temporary: Path) -> None:
        (temporary / "set").mkdir()
        (temporary / "set" / "numbers").write_bytes(CONTENT[:100])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(fetch, tmp_path, "set", dataset="numbers", files="numbers")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UserError, match="/proc/nowhere/set"):
        download(lambda _: None, Path("/proc/nowhere"), "set", dataset="numbers", files="numbers")
