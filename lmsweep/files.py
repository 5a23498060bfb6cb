"""Files that are whole at every moment, whatever process dies while it writes."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lmsweep.errors import UserError

# What an unwritable disk answers: the run is not to blame, so it is given back and not marked as failed.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE)


class StoreUnwritableError(UserError):
    """The disk takes no more; what was asked for can go on once it does."""


def unwritable(error: BaseException, root: Path) -> StoreUnwritableError | None:
    """The sentence for the user when `error` means that the disk below `root` takes no more, else None."""
    if not isinstance(error, OSError) or error.errno not in _NO_ROOM:
        return None
    return StoreUnwritableError(
        f"{root} cannot be written any more ({error.strerror}): make room and give the same command again; "
        "every run goes on from its last checkpoint."
    )


def write_atomically(path: Path, data: str | bytes) -> None:
    """Replace `path` by `data` in one step: readers see the old file or the new one, never a part."""
    with replacing(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary file to write, which then takes the place of `path`, or vanishes after an error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder: for milliseconds, and the kernel drops it when the process dies."""
    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
