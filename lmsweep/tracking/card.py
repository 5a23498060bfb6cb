"""What W&B shows our jobs under: id, name, group, job type, tags and config."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmsweep.config.groups import TrackingConfig
from lmsweep.config.run import RunConfig
from lmsweep.provenance import version_name

if TYPE_CHECKING:  # importing it imports pandas
    from lmsweep.figures.record import Record

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


def run_card(config: RunConfig, name: str, sweeps: Iterable[tuple[str, str | None]]) -> Card:
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


def attack_card(
    config: RunConfig, target: str, evaluation: Mapping[str, Any], sweeps: Iterable[tuple[str, str | None]]
) -> Card:
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


def tags_of(sweeps: Iterable[tuple[str, str | None]]) -> tuple[str, ...]:
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
