"""Execute one run: claim it, train it, record what happened. Asking again for a finished run is free."""

import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from lmsweep.config import RunConfig
from lmsweep.errors import UserError
from lmsweep.sweep.identity import run_id
from lmsweep.sweep.store import ClaimLostError, RunFolder, Store, beating

Results = dict[str, Any]


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
    configs = {name: config.to_dict()}
    done = perform(store, configs, lambda folders: [run(job, name, folders[0].path, folders[0].check_claim)])
    return store.run(name), done[name]


def perform(
    store: Store, configs: Mapping[str, Mapping[str, Any]], work: Callable[[list[RunFolder]], list[Results]]
) -> dict[str, Results]:
    """Claim what is not done yet, let `work` do it all at once, and record the results or the failure.

    `configs` maps ids to configurations; `work` gets the folders that were claimed and returns the results of
    each. What another process finished in the meantime is read.
    """
    claimed = _claim(store, configs)
    try:
        with beating(claimed):
            results = work(claimed) if claimed else []
    except (KeyboardInterrupt, SystemExit):
        _end(folder.release for folder in claimed)
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}" if not isinstance(error, UserError) else str(error)
        details = traceback.format_exc()
        _end(partial(folder.fail, reason, details) for folder in claimed)
        names = ", ".join(folder.id for folder in claimed)
        place = claimed[0].error
        raise RunFailedError(f"{store.noun} {names} failed: {reason} (details in {place})") from error
    lost = _end(partial(folder.finish, result) for folder, result in zip(claimed, results, strict=True))
    if lost:
        raise lost[0]
    return {name: store.run(name).read_results() or {} for name in configs}


def _end(endings: Iterable[Callable[[], None]]) -> list[ClaimLostError]:
    """Call each; a claim that was lost keeps no other from being ended, and hides no other error."""
    lost = []
    for ending in endings:
        try:
            ending()
        except ClaimLostError as error:
            lost.append(error)
    return lost


def _claim(store: Store, configs: Mapping[str, Mapping[str, Any]]) -> list[RunFolder]:
    """Those of `configs` that are not done, all claimed by this process, or none when one cannot be had."""
    claimed: list[RunFolder] = []
    try:
        for name, config in configs.items():
            folder = store.claim(name, config)
            if folder is not None:
                claimed.append(folder)
    except BaseException:
        _end(folder.release for folder in claimed)
        raise
    return claimed
