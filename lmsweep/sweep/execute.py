"""Execute one run: claim it, train it, record what happened. Asking again for a finished run is free."""

import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from lmsweep.config.request import Request
from lmsweep.config.run import RunConfig
from lmsweep.errors import FinalError, UserError
from lmsweep.files import unwritable
from lmsweep.store.lease import ClaimLostError, beating
from lmsweep.store.state import standing
from lmsweep.store.store import RunFolder, Store
from lmsweep.sweep.cost import cost_key
from lmsweep.sweep.tasks import reason
from lmsweep.tracking.mirror import mirror_stored
from lmsweep.tracking.run import tracked
from lmsweep.training.ranks import LocalRanks, RankDiedError
from lmsweep.training.task_ranks import first_task, follow, task_of

if TYPE_CHECKING:
    from lmsweep.training.run import Job

Results = dict[str, Any]


class RunFailedError(UserError):
    """A run that stopped with an error; the details are in its folder."""


def execute(config: RunConfig, request: Request | None = None) -> tuple[RunFolder, Results]:
    """Return the folder and the results of a run, training it only when they are missing."""
    store = Store(config.outputs)
    name = config.id
    folder = store.run(name)
    status = folder.read_status()
    state = standing(status, request or Request())
    if state == "cached":
        if config.trainer.processes == 1 or os.environ.get("SLURM_PROCID", "0") == "0":  # task 0 writes
            mirror_stored({name: config})
        return folder, folder.read_results() or {}
    if state == "failed":
        raise RunFailedError(
            f"Run {name} failed before: {status['reason']} (details in {folder.error}); "
            "force=true trains it again."
        )

    task_of(config, name)  # raises when Slurm's tasks are not those that the run needs
    from lmsweep.training.run import prepare_run  # imports torch, which a finished run does not need

    job = prepare_run(config)  # before the claim: what does not fit together leaves nothing in the store
    return folder, train(config, lambda: job, force=bool(request and request.force))


def train(config: RunConfig, prepare: "Callable[[], Job] | None" = None, *, force: bool = False) -> Results:
    """Claim a run and train it; whatever goes wrong after the claim is recorded as its failure.

    As one of several tasks of a Slurm step, task 0 does so and the others help it.
    """
    from lmsweep.training.run import prepare_run, run

    store = Store(config.outputs)
    name = config.id
    ready = prepare or partial(prepare_run, config)
    task = task_of(config, name)
    if task and task.rank > 0:
        return follow(config, task, store.run(name).path, ready)

    def work(folders: list[RunFolder]) -> list[Results]:
        company = LocalRanks(config, folders[0]) if config.trainer.processes > 1 else None
        tracker.open()
        results = run(ready(), name, folders[0].path, folders[0].check_claim, first or company, tracker)
        return [{**results, "cost_key": cost_key(config)}]

    configs = {name: config.to_dict()}
    # The mirror ends last, so that no upload keeps results from being recorded.
    with tracked(config, name) as tracker, first_task(config, task) as first:
        results = perform(store, configs, work, about={name: config.about()}, force=force)[name]
        if first:
            first.end(results)
    return results


def perform(
    store: Store,
    configs: Mapping[str, Mapping[str, Any]],
    work: Callable[[list[RunFolder]], list[Results]],
    *,
    about: Mapping[str, Mapping[str, Any]] | None = None,
    force: bool = False,
) -> dict[str, Results]:
    """Claim what is not done yet, let `work` do it all at once, and record the results or the failure.

    `configs` maps ids to configurations, `about` to what a list of runs shows of them; `work` gets the
    folders that were claimed and returns the results of each. What another process finished is read.
    """
    try:
        claimed = _claim(store, configs, about or {}, force)
    except OSError as error:
        raise unwritable(error, store.root.parent) or error from None
    try:
        with beating(claimed):
            results = work(claimed) if claimed else []
        lost = _end(partial(folder.finish, result) for folder, result in zip(claimed, results, strict=True))
    except (KeyboardInterrupt, SystemExit, RankDiedError):
        _end(folder.release for folder in claimed)
        raise
    except ClaimLostError:
        _end(folder.release for folder in claimed)  # those that are still ours
        raise
    except Exception as error:
        raise _failure(store, claimed, error) from error
    if lost:
        raise lost[0]
    return {name: store.run(name).read_results() or {} for name in configs}


def _failure(store: Store, claimed: list[RunFolder], error: Exception) -> UserError:
    """Record why the claimed runs stopped, and return it as one sentence."""
    no_room = unwritable(error, store.root.parent)
    why = reason(error)
    details, final = traceback.format_exc(), isinstance(error, FinalError)
    if no_room is None:
        try:
            _end(partial(folder.fail, why, details, final=final) for folder in claimed)
        except OSError as another:
            no_room = unwritable(another, store.root.parent)
            if no_room is None:
                raise
    if no_room is not None:
        # What the full disk does not take stays behind as a dead process's claim, which anyone takes over.
        with suppress(OSError):
            _end(folder.release for folder in claimed)
        return no_room
    names = ", ".join(folder.id for folder in claimed)
    return RunFailedError(f"{store.noun} {names} failed: {why} (details in {claimed[0].error})")


def _end(endings: Iterable[Callable[[], None]]) -> list[ClaimLostError]:
    """Call each; a claim that was lost keeps no other from being ended, and hides no other error."""
    lost = []
    for ending in endings:
        try:
            ending()
        except ClaimLostError as error:
            lost.append(error)
    return lost


def _claim(
    store: Store,
    configs: Mapping[str, Mapping[str, Any]],
    about: Mapping[str, Mapping[str, Any]],
    force: bool,
) -> list[RunFolder]:
    """Those of `configs` that are not done, all claimed by this process, or none when one cannot be had."""
    claimed: list[RunFolder] = []
    try:
        for name, config in configs.items():
            folder = store.claim(name, config, about.get(name), force=force)
            if folder is not None:
                claimed.append(folder)
    except BaseException:
        _end(folder.release for folder in claimed)
        raise
    return claimed
