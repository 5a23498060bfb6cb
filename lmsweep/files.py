"""Files that are whole at every moment, whatever process dies while it writes, and that notice changes."""

import errno
import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from lmsweep.errors import UserError

# What an unwritable disk answers: the run is not to blame, so it is given back and not marked as failed.
_NO_ROOM = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room"),
    errno.EROFS: "name another folder with outputs=... or LMSWEEP_OUTPUTS, or mount it for writing",
    **dict.fromkeys((errno.EIO, errno.ESTALE), "see to the disk"),
}

# Held while a file is replaced; raises where the caller has lost the right to replace it.
Lease = Callable[[], AbstractContextManager[object]]


class StoreUnwritableError(UserError):
    """The disk takes no more; what was asked for can go on once it does."""


def unwritable(error: BaseException, root: Path) -> StoreUnwritableError | None:
    """The sentence for the user when `error` means that the disk below `root` takes no more, else None."""
    if not isinstance(error, OSError) or error.errno not in _NO_ROOM:
        return None
    return StoreUnwritableError(
        f"{root} cannot be written ({error.strerror}): {_NO_ROOM[error.errno]} and give the same command "
        "again; every run goes on from its last checkpoint."
    )


class DamagedError(UserError):
    """A file that is not what was written."""

    def __init__(self, path: Path, why: object, remedy: str = "delete the file") -> None:
        super().__init__(f"{path} is damaged ({' '.join(str(why).split())}); {remedy}.")


def write_json(path: Path, content: Mapping[str, Any], indent: int | None = 2) -> None:
    """Replace `path` by a mapping and the checksum of its text, which `read_json` looks at."""
    text = json.dumps({**content, "checksum": ""}, indent=indent) + "\n"
    head, _, tail = text.rpartition('""')
    write_atomically(path, f'{head}"{digest(text.encode())}"{tail}')


def read_json(path: Path, remedy: str = "delete the file") -> dict[str, Any]:
    """What `write_json` wrote; DamagedError when anything else is in the file.

    Files of earlier versions have no checksum, and are read without one.
    """
    data = path.read_bytes()
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedError(path, error if data else "it is empty", remedy) from None
    if not isinstance(content, dict):
        raise DamagedError(path, "it holds no mapping", remedy)
    told = content.pop("checksum", None)
    if told is not None and digest(data.replace(f'"{told}"'.encode(), b'""')) != told:
        raise DamagedError(path, "its checksum does not fit: it was changed after it was written", remedy)
    return content


def digest(data: bytes) -> str:
    """A checksum: for accidents and edits, not against somebody who writes a new one."""
    return hashlib.sha256(data).hexdigest()[:32]


def sha256_of(path: Path) -> str:
    """The whole checksum of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, data: str | bytes, lease: Lease = nullcontext) -> None:
    """Replace `path` by `data` in one step: readers see the old file or the new one, never a part."""
    with replacing(path, lease) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def replacing(path: Path, lease: Lease = nullcontext) -> Iterator[Path]:
    """Give a temporary file to write, which then takes the place of `path`, or vanishes after an error."""
    # Two containers may have a process of the same number.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        with lease():
            temporary.replace(path)
    except FileNotFoundError:
        with lease():  # whoever has the lease now may have cleared the file away
            raise
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder: for milliseconds, and the kernel drops it when the process dies."""
    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
