"""Published data files: find them, check every byte, download them; half a file is never in place."""

import contextlib
import gzip
import hashlib
import socket
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from lmsweep.errors import UserError
from lmsweep.files import DamagedError

TIMEOUT_SECONDS = 30.0
REMEDY = (
    "delete it and call again to download it anew, or put the published file there; data=digits needs no "
    "files"
)


@dataclass(frozen=True)
class KnownFile:
    """A published file: its content is known, whether it lies there as such or packed by gzip."""

    name: str
    size: int
    sha256: str

    def find(self, folders: Iterable[Path]) -> Path | None:
        """Where the file is, plain or with .gz; None when it is in no folder."""
        for folder in folders:
            for path in (folder / self.name, folder / f"{self.name}.gz"):
                if path.is_file():
                    return path
        return None

    def read(self, path: Path) -> bytes:
        """The content, unpacked; DamagedError unless every byte is right."""
        data = path.read_bytes()
        if path.suffix == ".gz":
            try:
                data = gzip.decompress(data)
            except (OSError, EOFError, zlib.error) as error:
                raise DamagedError(path, f"it cannot be unpacked: {error}", REMEDY) from None
        if len(data) != self.size:
            raise DamagedError(path, f"it holds {len(data):,} bytes instead of {self.size:,}", REMEDY)
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise DamagedError(path, "its checksum is wrong", REMEDY)
        return data


def download(fetch: Callable[[Path], object], root: Path, folder: str, *, dataset: str, files: str) -> None:
    """Let `fetch` fill a temporary folder, then move what it put into `folder` to the same below `root`.

    An interrupted download leaves nothing in place. A failed download raises one sentence that names the
    `files` which the data set needs.
    """
    place = root / folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        temporary_folder = tempfile.TemporaryDirectory(prefix=".download-", dir=root)
        with temporary_folder as temporary, contextlib.ExitStack() as undo:
            # Without a timeout a dead connection would hang for ever; results alone belong on stdout.
            undo.callback(socket.setdefaulttimeout, socket.getdefaulttimeout())
            socket.setdefaulttimeout(TIMEOUT_SECONDS)
            undo.enter_context(contextlib.redirect_stdout(sys.stderr))
            fetch(Path(temporary))
            place.mkdir(parents=True, exist_ok=True)
            for path in (Path(temporary) / folder).iterdir():
                path.replace(place / path.name)
    except (RuntimeError, OSError, HTTPException, EOFError, tarfile.TarError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise UserError(
            f"data={dataset} needs {files} in {place}, and downloading them failed ({reason}): put them "
            "there, name the folder above by LMSWEEP_DATA or data.root, or use data=digits, which needs none."
        ) from None
