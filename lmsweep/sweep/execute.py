"""Execute one run: claim it, train it, record what happened. Asking again for a finished run is free."""

import traceback
from typing import Any

from lmsweep.config import RunConfig
from lmsweep.errors import UserError
from lmsweep.sweep.identity import run_id
from lmsweep.sweep.store import RunFolder, Store


class RunFailedError(UserError):
    """A run that stopped with an error; the details are in its folder."""


def execute(config: RunConfig) -> tuple[RunFolder, dict[str, Any]]:
    """Return the folder and the results of a run, training it only when they are missing."""
    store = Store(config.outputs)
    name = run_id(config.identity_dict())
    results = store.run(name).read_results()
    if results is not None:
        return store.run(name), results

    from lmsweep.training.run import prepare_run, run  # imports torch, which a finished run does not need

    job = prepare_run(config)
    folder = store.claim(name, config.to_dict())
    if folder is None:
        return execute(config)  # finished by another process in the meantime
    try:
        results = run(job, name, folder.path, folder.beat)
    except (KeyboardInterrupt, SystemExit):
        folder.release()
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}" if not isinstance(error, UserError) else str(error)
        folder.fail(reason, traceback.format_exc())
        raise RunFailedError(f"Run {name} failed: {reason} (details in {folder.error})") from error
    folder.finish(results)
    return folder, results
