"""`lmsweep sync` uploads to W&B what was recorded and is not there yet, each run once.

Every file holds its whole run, so of several files of a run (one per attempt) only the newest counts. W&B
marks beside the file what was uploaded; a call that was stopped, or met a server that broke, is repeated.
"""

import fcntl
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from lmsweep.commands.common import outputs_argument, parser_of, reported
from lmsweep.errors import UserError
from lmsweep.tracking.upload import FAILED, check_account, is_uploaded, upload
from lmsweep.tracking.wandb_run import CARD, LOCK

AT_ONCE = 100  # folders per call of W&B's uploader, because a command line has an end


@dataclass
class Recorded:
    """The newest folder of every W&B run, by what is to be done about it."""

    uploaded: list[Path] = field(default_factory=list)
    waiting: list[Path] = field(default_factory=list)
    busy: list[Path] = field(default_factory=list)  # being written or uploaded by another process


def look(folder: Path) -> Recorded:
    """What there is below <outputs>/wandb."""
    # Folders are named by the time, and numbered within a second; files by the id.
    newest = {file.name: file.parent for file in sorted(folder.glob("offline-run-*/run-*.wandb"))}
    found = Recorded()
    for path in newest.values():
        if is_uploaded(path):
            found.uploaded.append(path)
        else:
            with _locked([path]) as mine:
                (found.waiting if mine else found.busy).append(path)
    return found


def sync(outputs: Path, *, stall: float, dry_run: bool = False, artifacts: bool = True) -> str:
    """Upload, and say in a sentence what happened; UserError when something is left.

    `artifacts` are tables and checkpoints, which W&B looks for where they were recorded.
    """
    folder = outputs / "wandb"
    found = look(folder)
    rest = f"{len(found.uploaded)} were there already"
    if found.busy:
        rest += f", {len(found.busy)} are still being written"
    if dry_run or not found.waiting:
        return f"{len(found.waiting)} runs to upload from {folder}; {rest}."
    if artifacts:
        _check_staging(found.waiting, folder)
    check_account()
    for start in range(0, len(found.waiting), AT_ONCE):
        with _locked(found.waiting[start : start + AT_ONCE]) as mine:
            if mine and not _upload(mine, stall):
                break
    left = [path for path in found.waiting if not is_uploaded(path)]
    done = len(found.waiting) - len(left)
    if left:
        raise UserError(
            f"W&B took {done} of {len(found.waiting)} runs (why: above); `wandb login` or WANDB_API_KEY "
            "names an account, WANDB_BASE_URL another server; the same command goes on with the others."
        )
    (folder / FAILED).unlink(missing_ok=True)
    return f"{done} runs uploaded from {folder}; {rest}."


def _check_staging(folders: Sequence[Path], here: Path) -> None:
    """Refuse to lose artifacts: W&B's uploader leaves out what it does not find, and calls that complete."""
    for folder in folders:
        staging = Path(json.loads((folder / CARD).read_bytes())["staging"])
        if not staging.exists():
            raise UserError(
                f"{folder.name} was recorded in {staging}, where W&B looks for its tables and checkpoints: "
                f"ln -s {here.resolve()} {staging} puts it right, --without-artifacts leaves them out."
            )


def _upload(folders: Sequence[Path], stall: float) -> bool:
    """Whether all got through; W&B's uploader is ended when it gets none through for `stall` seconds."""
    done, since = 0, time.monotonic()

    def wait(seconds: float) -> bool:
        nonlocal done, since
        time.sleep(seconds)
        now = sum(map(is_uploaded, folders))
        if now > done:
            done, since = now, time.monotonic()
        elif time.monotonic() - since > stall:
            print(f"Nothing got through for {stall:g} s.", file=sys.stderr, flush=True)
            return False
        return True

    return upload(folders, "--yes", wait)


@contextmanager
def _locked(folders: Sequence[Path]) -> Iterator[list[Path]]:
    """Those of `folders` that nobody else is writing or uploading; nobody else can while this lasts."""
    mine = []
    with ExitStack() as locks:
        for folder in folders:
            lock = locks.enter_context((folder / LOCK).open("a"))
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine.append(folder)
        yield mine


@reported()
def sync_command(arguments: Sequence[str] | None = None) -> None:
    """Upload to W&B what was recorded and is not there yet, each run once."""
    parser = parser_of(sync_command)
    outputs_argument(parser)
    patience = "give up when nothing gets through for so many seconds"
    parser.add_argument("--stall", type=float, default=600.0, help=patience)
    without = "though tables and checkpoints were moved away"
    parser.add_argument("--without-artifacts", action="store_false", dest="artifacts", help=without)
    parser.add_argument("--dry-run", action="store_true", help="only say how many there are")
    print(sync(**vars(parser.parse_args(arguments))), flush=True)
