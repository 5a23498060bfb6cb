"""One run: train a network, evaluate its best weights (by validation) and its last; estimate its time."""

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from lmsweep.config.groups import CONSTANT, NO_ACQUISITION, NO_TELEMETRY
from lmsweep.config.run import RunConfig
from lmsweep.data import Split, fixed_choice
from lmsweep.files import Lease
from lmsweep.provenance import energy_joules, provenance
from lmsweep.training.acquisition import ACQUISITION, CURVE, Acquisition, acquired, config_of_round
from lmsweep.training.build import Parts, assemble, prepare_run
from lmsweep.training.checkpoint import (
    FINISHED,
    JsonLinesLogger,
    RunCheckpoint,
    load_checkpoint,
    load_or_set_aside,
    replay,
    save_finished,
)
from lmsweep.training.evaluate import Portrait, evaluate, portrait
from lmsweep.training.fit import fit
from lmsweep.training.world import Company, World, alone


class Listener(Protocol):
    """Who is told what a run records, such as a mirror of it."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """A line of metrics.jsonl; a run that goes on tells all lines it keeps again, from the first one."""
        return

    def describe(
        self, results: Mapping[str, Any], portrait: Callable[[], Portrait | None], checkpoint: Path
    ) -> None:
        """What results.json says, what there is to see, and where the weights are."""
        return


class _Silent(Listener):
    pass


SILENT = _Silent()


def run(
    job: Parts,
    run_id: str,
    folder: Path,
    lease: Lease = nullcontext,
    company: Company = alone,
    listener: Listener = SILENT,
    pause_at: int | None = None,
) -> dict[str, Any]:
    """Train (or go on training) in `folder` and return the results.

    `lease` is held while a file is replaced, and raises when another process has the run.
    `company` brings the other processes that share the training; this one is rank 0.
    `listener` is told what is recorded. The first validation from step `pause_at` on ends in PausedError.
    """
    config, data = job.config, job.data
    started, joules = time.monotonic(), energy_joules()
    checkpoint_path = folder / "checkpoint.ckpt"
    checkpoint = load_or_set_aside(checkpoint_path, lease, folder / "metrics.jsonl")
    # Seconds of earlier attempts, up to the checkpoint that this one goes on from.
    before = float(checkpoint.get("seconds", 0.0)) if checkpoint else 0.0

    def seconds() -> float:
        return before + time.monotonic() - started

    if checkpoint is not None and FINISHED in checkpoint:
        # Stopped between the end of training and the record of its results.
        measured, train_seconds = checkpoint[FINISHED], before
        job.module.load_state_dict(checkpoint["state_dict"])
        replay(folder / "metrics.jsonl", listener.log)
    else:
        keep = partial(RunCheckpoint, checkpoint_path, len(job.data.val), lease, seconds, pause_at=pause_at)
        open_lines = partial(JsonLinesLogger, config, folder, checkpoint, lease, listener.log)
        if config.acquisition.active:
            job, measured, last = _acquire(job, checkpoint, keep, open_lines)
            train_seconds = seconds()
        else:
            keeper = keep()
            with company() as world:
                steps = fit(job, checkpoint, keeper, world, open_lines())
            train_seconds = seconds()
            measured, last = measure(job, keeper, steps)
        save_finished(folder / "last.ckpt", last, measured, train_seconds, lease)
        save_finished(checkpoint_path, job.module.state_dict(), measured, train_seconds, lease)
    curve = measured.pop(CURVE, None)
    if curve is not None:
        job = dataclasses.replace(job, data=acquired(data, curve))
    results = {
        "id": run_id,
        "method": config.method_name(),
        "seed": config.seed,
        "metrics": measured["best"],
        "selections": {name: values for name, values in measured.items() if name != "best"},
        **({} if curve is None else {"curve": curve}),
        "remarks": remarks(job, measured["best"]),
        "data": job.data.fingerprint,
        "seconds": seconds(),
        "train_seconds": train_seconds,
        "energy_joules": _used(joules, energy_joules()),  # of this attempt
        "provenance": provenance(),
    }
    shown: dict[str, Any] = {"examples": config.tracking.examples, "epsilon": config.tracking.epsilon}
    look = partial(portrait, job.module, job.data.test, job.data.num_classes, **shown)
    listener.describe(results, look, checkpoint_path)
    return results


def _acquire(
    job: Parts,
    checkpoint: dict[str, Any] | None,
    keep: Callable[..., RunCheckpoint],
    open_lines: Callable[..., JsonLinesLogger],
) -> tuple[Parts, dict[str, Any], dict[str, Tensor]]:
    """Train a fresh network in every round of an acquisition; return the last round and what it measured.

    A checkpoint knows the rounds before its own, so that a run goes on in the middle of any of them.
    """
    config, options, steps = job.config, job.config.acquisition, job.config.trainer.max_steps
    state = Acquisition.of(job.data, options, checkpoint and checkpoint[ACQUISITION])
    lines = open_lines(before=state.round * steps)
    while True:
        keeper = keep(beside={ACQUISITION: state.known()})
        lines.before = state.round * steps
        one = assemble(config_of_round(config, state.round), job.data.with_training(state.labelled))
        taken = fit(one, checkpoint, keeper, lines=lines)
        measured, last = measure(one, keeper, taken)
        state.record(measured, len(job.data.train))
        lines.log_metrics(state.told(), taken - 1)  # loggers count steps from 0
        if state.round > options.rounds:
            return one, {**measured, CURVE: state.curve}, last
        state.extend(job.data, options, one.module, config.seed)
        checkpoint = None


def remarks(job: Parts, metrics: Mapping[str, float]) -> list[str]:
    """What a reader of the results should know first, in a few words each."""
    data = job.data
    found = list(data.remarks)
    if job.config.trainer.batch_size > len(data.train):
        found.append(f"a batch is larger than the {len(data.train)} training samples")
    guess = float(data.test.y.bincount().max()) / len(data.test)  # by always naming the most frequent class
    if metrics["test_accuracy"] <= guess + 2 * math.sqrt(guess * (1 - guess) / len(data.test)):
        found.append("at chance level")
    # Large logits make a large loss of few mistakes, and so do wrong labels: the loss alone says nothing.
    telling = not data.fingerprint.get("flipped") and metrics["train_accuracy"] < 0.5
    if telling and metrics["train_loss"] >= math.log(data.num_classes):
        found.append("the loss never fell below that of guessing")
    return found


def _used(before: float | None, after: float | None) -> float | None:
    if before is None or after is None or after < before:  # counters start again at their end
        return None
    return after - before


def measure(
    job: Parts, keeper: RunCheckpoint, steps: int
) -> tuple[dict[str, dict[str, Any]], dict[str, Tensor]]:
    """Loss and accuracy of what training chose, by selection, and the last weights; the module has the best.

    Training data is the larger part, so it is evaluated for the best weights only.
    """
    last = {name: value.detach().clone() for name, value in job.module.state_dict().items()}
    weights = {
        **{name: (best.step, best.weights) for name, best in keeper.chosen.items()},
        "last": (steps, last),
    }
    data = job.data
    splits = {"val": data.val, "test": data.test}
    train, most = data.train, job.config.trainer.evaluation_samples
    if most is not None:
        train = train.select(fixed_choice(len(train), most))
    if data.clean is not None:
        splits["val_clean"] = data.val.with_labels(data.clean)
    by_step: dict[int, dict[str, Any]] = {}
    for name in sorted(weights, key=lambda name: name == "best"):
        step, state = weights[name]
        job.module.load_state_dict(state)
        wanted = {**splits, "train": train} if name == "best" else splits
        known = by_step.setdefault(step, {"selected_step": step, "steps": steps})
        for split in [split for split in wanted if f"{split}_accuracy" not in known]:
            found = evaluate(job.module, wanted[split])
            known |= {f"{split}_{key}": value for key, value in found.items()}
    return {name: by_step[step] for name, (step, _) in weights.items()}, last


def take_part(job: Parts, folder: Path, world: World) -> None:
    """What all ranks but 0 do of a run: their share of the training. They only read what is in `folder`."""
    path = folder / "checkpoint.ckpt"
    fit(job, load_checkpoint(path), RunCheckpoint(path, len(job.data.val)), world)


# Steps are added to the probe as long as it stays about this short.
BUDGET_SECONDS = 3.0
MOST_STEPS = 20
SAMPLES = 500  # in the splits of the probe: enough to time an evaluation, which is then scaled up
LEAST = 4  # samples of a batch or a split, of networks that take long for each


def probe_seconds(config: RunConfig) -> float:
    """Estimate the seconds of a whole run; trains a few steps in a temporary folder and forgets them."""
    job, options = prepare_run(config), config.acquisition
    most = config.trainer.evaluation_samples or math.inf
    sizes = {name: min(most, len(getattr(job.data, name))) for name in ("train", "val", "test")}
    trainer = config.trainer
    if options.active:
        sizes["train"] = options.images(job.data.num_classes)
    least = _few(job.data.val, LEAST)
    first, again = _sample_seconds(job, least), _sample_seconds(job, least)  # the first evaluation is slow
    affordable = int(BUDGET_SECONDS / max(min(first, again), 1e-6))
    batch = min(trainer.batch_size, max(LEAST, affordable)) if trainer.processes == 1 else trainer.batch_size
    samples = max(LEAST, min(SAMPLES, affordable))
    one = _short_run(config, 1, batch, samples)
    if one < BUDGET_SECONDS:
        one = _short_run(config, 1, batch, samples)  # the first steps of a process are slow
    more = max(1, min(MOST_STEPS, int(BUDGET_SECONDS / one)))
    step = max(0.0, (_short_run(config, 1 + more, batch, samples) - one) / more) * trainer.batch_size / batch
    sample = _sample_seconds(job, _few(job.data.val, samples))
    evaluated = (trainer.max_steps // trainer.val_every) * sizes["val"] + sum(sizes.values())
    total = one + step * (trainer.max_steps - 1) + sample * evaluated
    if options.active:
        scored = min(len(job.data.train), options.pool or len(job.data.train)) * options.passes
        total += options.rounds * (total + (sample * scored if options.score != "random" else 0))
    telemetry = job.telemetry
    if telemetry is None:
        return total
    measurements = 1 + math.ceil(trainer.max_steps / config.telemetry.every)
    return total + measurements * _seconds(lambda: telemetry.measure(job.module))


def _sample_seconds(job: Parts, few: Split) -> float:
    return _seconds(lambda: evaluate(job.module, few)) / len(few)


def _short_run(config: RunConfig, steps: int, batch: int, samples: int) -> float:
    changes = {"max_steps": steps, "val_every": steps, "batch_size": batch}
    trainer = config.trainer.model_copy(update=changes)
    tracking = config.tracking.model_copy(update={"name": "none"})
    update: dict[str, Any] = {"trainer": trainer, "tracking": tracking, "telemetry": NO_TELEMETRY}
    update |= {"schedule": CONSTANT, "callbacks": {}, "acquisition": NO_ACQUISITION}
    job = prepare_run(config.model_copy(update=update))
    val, test = (torch.arange(min(len(split), samples)) for split in (job.data.val, job.data.test))
    few = job.data.evaluated_on(val, test)
    job.data = dataclasses.replace(few, train=_few(few.train, max(batch, samples)))
    with tempfile.TemporaryDirectory() as folder:
        return _seconds(lambda: run(job, "probe", Path(folder)))


def _few(split: Split, samples: int) -> Split:
    return split.select(torch.arange(min(len(split), samples)))


def _seconds(work: Callable[[], object]) -> float:
    # On a single core processor time counts: other processes on that core make only wall time longer.
    alone = torch.get_num_threads() == 1 and not torch.cuda.is_available()
    clock = time.process_time if alone else time.monotonic
    started = clock()
    work()
    return clock() - started
