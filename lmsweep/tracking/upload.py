"""Upload W&B runs with W&B's own uploader, `wandb beta sync`, and end that in time.

W&B's online mode asks the server before the first step and after the last one, so that a server that hangs
would stop a run; and `wandb beta sync --live` follows a run that was killed for ever. So a run starts this
module as a process, which starts the uploader and lives for as long as the run does, and then for
`tracking.patience` seconds at most. What was not uploaded by then is left to `make sync`.
"""

import math
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import psutil

from lmsweep.config.groups import TrackingConfig
from lmsweep.errors import UserError

FAILED = "upload-failed"  # in the folder of all W&B runs: touched when an upload does not get through
LOG = "upload.log"  # in the folder of one: what W&B's uploader said
RUN_ID, SWEEP_ID = "WANDB_RUN_ID", "WANDB_SWEEP_ID"  # how an agent tells a run about itself
LEAVE_SECONDS = 3.0  # for the process to end its own child
LOOK_EVERY_SECONDS = 0.1
ANSWER_SECONDS = 3.0  # for a server to say anything at all


def start_upload(folder: Path, options: TrackingConfig, lock: int) -> "subprocess.Popen[bytes] | None":
    """Begin to upload; None when that is not wanted, or failed a moment ago. The process shares `lock`."""
    if options.mode != "online" or failed_lately(folder.parent, options.pause):
        return None
    words = [sys.executable, "-m", "lmsweep.tracking.upload", str(folder), str(options.patience)]
    return subprocess.Popen(  # noqa: S603 - this module, by words of ours
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the run
        pass_fds=(lock,),
        # These variables of a W&B agent are about one run, whose file has them already.
        env={key: value for key, value in os.environ.items() if key not in (RUN_ID, SWEEP_ID)},
    )


def finish_upload(process: "subprocess.Popen[bytes]", folder: Path, patience: float) -> None:
    """Say that the run is complete, and wait for its upload, though not longer than `patience`."""
    if process.stdin is not None:
        process.stdin.close()
    if patience == 0:
        return
    try:
        process.wait(patience + LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        _end(process)
    if not is_uploaded(folder):
        (folder.parent / FAILED).touch()  # a process that was killed could not do so
        told = f"Not uploaded to W&B yet: {folder} (why: {folder / LOG}); `make sync` does it."
        print(told, file=sys.stderr, flush=True)


def failed_lately(folder: Path, pause: float) -> bool:
    """Whether an upload failed in the last `pause` seconds, so that another one would only cost time."""
    try:
        return time.time() - (folder / FAILED).stat().st_mtime < pause
    except FileNotFoundError:
        return False


def is_uploaded(folder: Path) -> bool:
    """Whether W&B's uploader marked the folder as complete; its exit status is 0 either way."""
    return any(folder.glob("*.wandb.synced"))


def check_account() -> None:
    """Raise UserError where no upload can get through: no answer from the server, or no key that it takes."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    server = wandb.setup().settings.base_url
    trouble = _answer(server)
    if trouble is not None:
        raise UserError(
            f"The W&B server {server} does not answer ({trouble}): connect this machine to it, or name "
            "another server with WANDB_BASE_URL; what was recorded stays where it is."
        )
    try:
        known = wandb.login(prompt=False)
    except wandb.errors.Error as error:
        known, trouble = False, str(error)
    if not known:
        raise UserError(
            f"W&B has no key for {server}{f' ({trouble})' if trouble else ''}: call `wandb login`, or set "
            "WANDB_API_KEY."
        )


def _answer(server: str) -> str | None:
    """Why a server says nothing of use within ANSWER_SECONDS; None when it speaks, were it to refuse."""
    trouble: str | None = f"nothing within {ANSWER_SECONDS:g} s"

    def ask() -> None:
        nonlocal trouble
        try:
            with urllib.request.urlopen(server, timeout=ANSWER_SECONDS):  # noqa: S310 - W&B's own setting
                trouble = None
        except urllib.error.HTTPError as error:
            trouble = str(error) if error.code >= 500 else None
        except (OSError, ValueError) as error:
            trouble = str(getattr(error, "reason", error))

    # In a thread, because to look up a name without a network can take longer, and knows no limit.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return trouble


def upload(
    folders: Sequence[Path], option: str, wait_for: Callable[[float], bool], log: Path | None = None
) -> bool:
    """Upload, until `wait_for` (a few seconds) is false at the latest; whether all folders got through.

    The uploader reports nothing about itself to W&B, and keeps its own logs beside the runs.
    """
    words = [sys.executable, "-m", "wandb", "beta", "sync", option, *map(str, folders)]
    about = {"WANDB_ERROR_REPORTING": "false", **os.environ, "WANDB_DIR": str(folders[0].parent.parent)}
    with log.open("ab") if log else nullcontext() as file:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=about)  # noqa: S603 - W&B's own command
    try:
        while process.poll() is None and wait_for(LOOK_EVERY_SECONDS):
            pass
    finally:
        _end(process)
    return all(map(is_uploaded, folders))


def _end(uploader: "subprocess.Popen[bytes]") -> None:
    """End W&B's uploader with the processes that it started, which would go on trying without it."""
    if uploader.poll() is not None:
        return
    family = psutil.Process(uploader.pid).children(recursive=True)
    uploader.kill()
    uploader.wait()
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def main() -> None:
    """Entry point of the process beside a run."""
    folder, patience = Path(sys.argv[1]), float(sys.argv[2])
    deadline = math.inf

    def wait_for_the_run() -> None:
        nonlocal deadline
        sys.stdin.buffer.read()  # the run says nothing: the end of its life ends the pipe
        deadline = time.monotonic() + patience

    def wait(seconds: float) -> bool:
        time.sleep(seconds)
        return time.monotonic() < deadline

    threading.Thread(target=wait_for_the_run, daemon=True).start()
    if upload([folder], "--live", wait, folder / LOG):
        (folder.parent / FAILED).unlink(missing_ok=True)
    else:
        (folder.parent / FAILED).touch()


if __name__ == "__main__":
    main()
