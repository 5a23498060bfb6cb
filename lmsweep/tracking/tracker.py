"""Mirrors of jobs: a run while it trains, an evaluation under an attack, a figure with its claims.

A card is what W&B shows a job under: id, name, group, job type, tags and config. A mirror is told what a
`Tracker` can be told; a guard keeps its troubles away from the job.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lmsweep.config.groups import TrackingConfig
from lmsweep.config.run import RunConfig
from lmsweep.provenance import version_name
from lmsweep.store.sweeps import sweeps_of

if TYPE_CHECKING:  # importing these imports pandas and torch
    from lmsweep.figures.record import Record
    from lmsweep.training.evaluate import Portrait

T = TypeVar("T")
Look = Callable[[], "Portrait | None"]  # makes what there is to see of a run; None without weights
Sweeps = Iterable[tuple[str, str | None]]  # the name and the scale of each
Rows = Iterable[Sequence[Any]]
TRAIN = "train"
ATTACK = "attack"  # the job type of evaluations under an attack, and what their metrics are called
FIGURE = "figure"
LONGEST_TAG, LONGEST_GROUP = 64, 128  # what W&B takes
# Defaults, which a label leaves out.
PLAIN = {"label_noise": 0, "fraction": 1}


@dataclass(frozen=True)
class Card:
    """What a list of W&B runs shows."""

    id: str
    name: str
    group: str
    job_type: str
    tags: tuple[str, ...]
    config: Mapping[str, Any]


def run_card(config: RunConfig, name: str, sweeps: Sweeps) -> Card:
    """The card of a training run with the id `name`."""
    facts = {"run_id": name, "method_name": config.method_name(), "cell": group_of(config)}
    return Card(
        id=name,
        name=f"{label(config)} seed={config.seed}",
        group=group_of(config),
        job_type=TRAIN,
        tags=tags_of(sweeps),
        config={**config.to_dict(), **facts},
    )


def attack_card(config: RunConfig, target: str, evaluation: Mapping[str, Any], sweeps: Sweeps) -> Card:
    """The card of the run `target` in an evaluation as results.json describes it."""
    source = evaluation["source"] or target
    name = attack_name(evaluation["attack"], transfer=evaluation["source"] is not None)
    about = {key: evaluation[key] for key in ("split", "samples", "attack")}
    about |= {"target": target, "source": source, "source_method": evaluation["methods"][source]}
    run = {**config.about(), "method_name": config.method_name(), "cell": group_of(config)}
    return Card(
        id=f"{evaluation['id']}-{target}" if evaluation["source"] else evaluation["id"],
        name=f"{name}: {label(config)} seed={config.seed}",
        group=group_of(config),
        job_type=ATTACK,
        tags=tags_of(sweeps),
        config={**run, **about, "attack_name": name, "margin": config.to_dict()["margin"]},
    )


def attack_name(options: Mapping[str, Any], *, transfer: bool) -> str:
    """What its metrics are called: `white_box_ifgsm`, `black_box_fgsm_snr`, `white_box_ifgsm_margin`, ..."""
    kind = options["kind"].rpartition(".")[2]  # the module of an attack of the user's own is dotted
    words = ["black_box" if transfer else "white_box", kind]
    words += ["snr"] if options.get("snrs") is not None else []
    words += [options["loss"]] if options.get("loss", "xent") != "xent" else []
    words += [options["target"]] if options.get("target", "none") != "none" else []
    return "_".join(words)


def attack_metric(name: str, what: str) -> str:
    """The metric of an attack: its `strength`, which is the x axis of the others, `accuracy`, ..."""
    return f"{ATTACK}/{name}/{what}"


def figure_card(record: "Record") -> Card:
    """The card of a figure; drawing it again takes the place of the old one."""
    name, scale = record.figure, record.scale
    kept = ("figure", "scale", "title", "paper", "question", "command", "provenance", "selection", "seeds")
    return Card(
        id=sweep_tag(name, scale),
        name=f"{name} at {scale} scale",
        group=name,
        job_type=FIGURE,
        tags=tags_of([(name, scale)]),
        config=record.model_dump(include=set(kept)),
    )


def label(config: RunConfig) -> str:
    """A cell in words: `margin_l2_all digits gamma=0.5 label_noise=0.2`."""
    about = {
        k: v for k, v in config.about().items() if k not in ("seed", "model", "content") and PLAIN.get(k) != v
    }
    words = [str(about.pop("method")), str(about.pop("data"))]
    for key, value in sorted(about.items()):
        words.append(f"{key}={value:g}" if isinstance(value, int | float) else f"{key}={value}")
    return " ".join(words)


def group_of(config: RunConfig) -> str:
    """A run's cell, which all its seeds share: in words, and by the hash of all that is not the seed."""
    digest = config.cell
    return f"{label(config)[: LONGEST_GROUP - len(digest) - 1]} {digest}"


def tags_of(sweeps: Sweeps) -> tuple[str, ...]:
    """Each sweep, each sweep at its scale, and the version of this checkout."""
    words: list[str] = []
    for sweep, scale in sweeps:
        words += [sweep, sweep_tag(sweep, scale)]
    version = version_name()
    return tuple(dict.fromkeys(word[:LONGEST_TAG] for word in [*words, *([version] if version else [])]))


def sweep_tag(sweep: str, scale: str | None) -> str:
    """The tag of everything that belongs to a sweep at a scale, and nothing else."""
    return (f"{sweep}-{scale}" if scale else sweep)[:LONGEST_TAG]


def folder_of(options: TrackingConfig, outputs: str | Path) -> Path:
    """Where a tracker keeps its files."""
    return Path(outputs) / options.name


@dataclass(frozen=True)
class Line:
    """Which columns of a table to plot: one line per value of `group`."""

    x: str
    y: str
    title: str
    group: str | None = None


class Tracker:
    """Mirrors one run; this one mirrors nothing, as `tracking=none` asks for."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """A line of metrics.jsonl; a run that goes on tells all lines it keeps again, from the first one."""

    def describe(self, results: Mapping[str, Any], portrait: Look, checkpoint: Path) -> None:
        """What results.json says, what there is to see, and where the weights are."""

    def table(self, name: str, columns: Sequence[str], rows: Rows, line: Line | None = None) -> None:
        """A table, and with `line` a plot of it."""

    def picture(self, name: str, file: Path) -> None:
        """An image."""

    def keep(self, file: Path) -> None:
        """A file as it is."""

    def close(self, exit_code: int, *, given_back: bool = False) -> None:
        """The end; `given_back` when the run goes on later from its last checkpoint."""


class Guard(Tracker):
    """A tracker that is opened late; after its first error, told on stderr, it hears of the end only."""

    def __init__(self, begin: Callable[[], Tracker]) -> None:
        self._begin = begin
        self._tracker = Tracker()
        self._broken = False

    def open(self) -> None:
        """Begin to mirror; before this call the guard passes nothing on."""
        self._tracker = self._guarded(self._begin) or Tracker()

    def close(self, exit_code: int, *, given_back: bool = False) -> None:
        """Tell the end once, whatever happened before."""
        self._broken = False
        self._guarded(self._tracker.close, exit_code, given_back=given_back)
        self._tracker = Tracker()

    def _guarded(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T | None:
        if self._broken:
            return None
        try:
            return call(*arguments, **options)
        except Exception as error:
            self._broken = True
            told = f"{type(error).__name__}: {error}".splitlines()[0]
            print(f"Tracking ends here, the work goes on: {told}", file=sys.stderr, flush=True)
            return None


def _passed_on(name: str) -> Callable[..., None]:
    def call(guard: Guard, *arguments: Any, **options: Any) -> None:
        guard._guarded(getattr(guard._tracker, name), *arguments, **options)

    return call


for _name in ("log", "describe", "table", "picture", "keep"):
    setattr(Guard, _name, _passed_on(_name))


@contextmanager
def mirrored(options: TrackingConfig, outputs: str | Path, card: Callable[[], Card]) -> Iterator[Guard]:
    """A guard whose tracker shows `card` once it is opened, and then hears how the block ended."""
    guard = Guard(lambda: open_tracker(options, folder_of(options, outputs), card))
    try:
        yield guard
    except BaseException as error:
        guard.close(1, given_back=not isinstance(error, Exception))
        raise
    guard.close(0)


def open_tracker(options: TrackingConfig, folder: Path, card: Callable[[], Card]) -> Tracker:
    """A tracker of the kind that is asked for."""
    if options.name == "none":
        return Tracker()
    if options.name == "tensorboard":
        from lmsweep.tracking.tensorboard_run import TensorBoardRun

        return TensorBoardRun(card(), options, folder)
    from lmsweep.tracking.wandb_run import WandbRun

    return WandbRun(card(), options, folder)


def tracked(config: RunConfig, name: str) -> AbstractContextManager[Guard]:
    """The guarded mirror of the run with the id `name`; it begins when it is opened."""
    outputs = Path(config.outputs)
    return mirrored(config.tracking, outputs, lambda: run_card(config, name, sweeps_of(outputs, name)))


def mirror_attack(
    options: TrackingConfig, outputs: str | Path, runs: Mapping[str, RunConfig], results: Mapping[str, Any]
) -> None:
    """Mirror an evaluation under an attack: one mirror for each of the attacked runs.

    A mirror has the curve as rows, a table and a plot.
    """
    if options.name == "none":
        return
    columns = ("strength", "accuracy", "zero_gradients")
    attack = attack_name(results["attack"], transfer=results["source"] is not None)
    line = Line("strength", "accuracy", f"{attack.replace('_', ' ')}, accuracy by {results['unit']}")
    for name, config in runs.items():
        curve, sweeps = results["curves"][name], sweeps_of(Path(outputs), name)
        rows = list(zip(curve["strengths"], curve["accuracy"], curve["zero_gradients"], strict=True))
        card = partial(attack_card, config, name, {**results, **curve}, sweeps)
        with mirrored(options, outputs, card) as tracker:
            tracker.open()
            for number, row in enumerate(rows):
                values = {attack_metric(attack, key): value for key, value in zip(columns, row, strict=True)}
                tracker.log({key: value for key, value in values.items() if value is not None}, number)
            tracker.table(attack_metric(attack, "curve"), columns, rows, line)


def mirror_figure(options: TrackingConfig, outputs: str | Path, record: "Record", picture: Path) -> None:
    """Mirror a figure: the picture, its points, and the claims with their verdicts."""
    if options.name == "none":
        return
    import pandas as pd  # takes half a second, which a run need not spend

    from lmsweep.figures.record import ClaimRow, claim_rows

    csv = picture.with_suffix(".csv")
    points = pd.read_csv(csv, keep_default_na=False)
    with mirrored(options, outputs, partial(figure_card, record)) as tracker:
        tracker.open()
        tracker.picture("figure", picture)
        tracker.table("claims", ClaimRow._fields, claim_rows(record.claims))
        for panel, part in points.groupby("panel", sort=False):
            line = Line("x", "mean", f"{record.title}: {panel}", "method")
            tracker.table(f"points/{panel}", list(part.columns), part.to_numpy().tolist(), line)
        tracker.keep(csv)
        tracker.keep(picture.with_suffix(".json"))
