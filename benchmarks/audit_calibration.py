"""Is the audit's verdict right? `python -m benchmarks.audit_calibration choosing`, then `... fresh`.

`choosing` audits the networks that limits are chosen with and says which limits are best; they belong into
conf/audit_limits.yaml. `fresh` audits networks that nobody had looked at when rule and limits were settled,
and compares verdicts with the truth (benchmarks/audit_truth.py). Each network is a line of
outputs/bench/audit_calibration.jsonl, so an interrupted calibration goes on.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import torch
from scipy.stats import binomtest

from benchmarks.audit_networks import CHOOSING, FRESH, Cell, Trick, images, trained
from benchmarks.audit_truth import truth, truth_measured
from lmsweep.attacks import Ensemble
from lmsweep.attacks.measures.masking import (
    OF_MASKING,
    OF_THE_STRONGEST,
    Evidence,
    Thresholds,
    Verdict,
    judge,
    measure,
)
from lmsweep.config.hydra import composed
from lmsweep.files import write_atomically

EPSILON, SAMPLES = 0.1, {"digits": 100, "MNIST": 50}
VERDICTS: tuple[Verdict, ...] = ("consistent", "attack too weak to say", "gradients masked")
Line = Mapping[str, Any]


def audited(model: Trick, data: str, seed: int, *, oracle: bool) -> dict[str, Any]:
    """What the audit sees, by its own defaults, and the truth."""
    config = composed("audit", ["runs=[none]"])
    quick = {key: config["attack"][key] for key in ("apgd_steps", "targets", "minimal_steps", "queries")}
    x, y = (part[: SAMPLES[data]] for part in images(data)[1])
    torch.manual_seed(seed)
    begun = time.process_time()
    evidence = measure(
        model,
        [(x, y)],
        epsilons=(EPSILON,),
        alpha=config["alpha"],
        unbounded_alpha=config["unbounded_alpha"],
        attack=Ensemble(epsilons=(EPSILON,), **quick),
    )
    seconds = time.process_time() - begun
    claimed = evidence.curves["ifgsm"][0]
    known = truth_measured(model, x, y, claimed, epsilon=EPSILON, alpha=config["alpha"], oracle=oracle)
    return {"evidence": evidence.to_dict(), "seconds": seconds, **known}


def right_verdict(line: Line) -> Verdict:
    """What the audit should say."""
    return truth(line["evidence"]["curves"]["ifgsm"][0], line["left"], line["unhidden"])


def verdict(line: Line, thresholds: Thresholds) -> Verdict:
    """What the audit says."""
    return judge(Evidence(**line["evidence"]), thresholds)[0]


def right(lines: list[Line], thresholds: Thresholds) -> int:
    """How many verdicts are right."""
    return sum(verdict(line, thresholds) == right_verdict(line) for line in lines)


def chosen(lines: list[Line], thresholds: Thresholds) -> Thresholds:
    """The limits with most right verdicts; of equally good ones those nearest to the limits before."""
    for name in dict.fromkeys(("gap", *OF_MASKING, *OF_THE_STRONGEST)):
        before = thresholds[name]
        tried = sorted({before, *(k / 100 for k in range(2, 100, 2))}, key=lambda value: abs(value - before))
        counts = [right(lines, {**thresholds, name: value}) for value in tried]
        best = tried[counts.index(max(counts))]
        thresholds = {**thresholds, name: best}
    return thresholds


def share(count: int, total: int) -> str:
    """A share and its interval."""
    low, high = binomtest(count, total).proportion_ci(method="wilson")
    return f"{count} of {total}: {count / total:.1%} [{low:.1%}, {high:.1%}]"


def report(lines: list[Line], limits: Thresholds) -> Iterator[str]:
    """The confusion matrix, shares of right verdicts, what is wrong, and flips between seeds."""
    for word in VERDICTS:
        words = [verdict(line, limits) for line in lines if right_verdict(line) == word]
        yield f"truth {word}: " + ", ".join(f"{one} {words.count(one)}" for one in VERDICTS)
    yield f"right {share(right(lines, limits), len(lines))}"
    first = VERDICTS[0]
    believed = sum((verdict(line, limits) == first) == (right_verdict(line) == first) for line in lines)
    yield f"right about whether IFGSM claims too much {share(believed, len(lines))}"
    for line in lines:
        said, true = verdict(line, limits), right_verdict(line)
        if said != true:
            yield f"wrong: {line['cell']}, seed {line['seed']}: {said}, truth {true}; {numbers(line)}"
    for cell in dict.fromkeys(line["cell"] for line in lines):
        seeds = [line for line in lines if line["cell"] == cell]
        found = [verdict(line, limits) for line in seeds]
        if len(set(found)) > 1:
            truths = [right_verdict(line) for line in seeds]
            yield f"seeds differ: {cell}: {found}, truth {truths}; " + "; ".join(map(numbers, seeds))


def numbers(line: Line) -> str:
    """What decides about a network."""
    evidence = Evidence(**line["evidence"])
    signs = {name: value for name, value in evidence.signs.items() if value}
    shown = {"gap": evidence.gap[0], "truth": evidence.curves["ifgsm"][0] - line["left"], **signs}
    shown["truth hidden"] = evidence.curves["ifgsm"][0] - line["unhidden"]
    return ", ".join(f"{name} {value:.2f}" for name, value in shown.items())


def wanted(cells: Mapping[str, Cell]) -> list[tuple[str, int]]:
    """The networks, one seed of every cell before the next; MNIST last, because it costs the most."""
    found = [(name, seed) for name, cell in cells.items() for seed in cell.seeds]
    return sorted(found, key=lambda one: (one[1], cells[one[0]].data == "MNIST"))


def main(half: str, measuring: str = "measure") -> None:
    """Measure what is missing of a half, then report; with "report" as a second word, only report."""
    torch.set_num_threads(1)
    cells = {"choosing": CHOOSING, "fresh": FRESH}[half]
    folder = Path(os.environ.get("LMSWEEP_OUTPUTS", "outputs")) / "bench"
    path = folder / "audit_calibration.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done: dict[tuple[str, int], Line] = {(line["cell"], line["seed"]): line for line in lines}
    for name, seed in wanted(cells):
        if (name, seed) in done or measuring == "report":
            continue
        data = cells[name].data
        # Its own code costs four times the rest, so it has a say where it counts and is affordable.
        oracle = half == "fresh" and data == "digits"
        model = trained(name, cells[name], seed, folder / "audit_networks")
        done[name, seed] = {"cell": name, "seed": seed, **audited(model, data, seed, oracle=oracle)}
        write_atomically(path, "".join(json.dumps(line) + "\n" for line in done.values()))
        print(name, seed, f"{done[name, seed]['seconds']:.1f} s", flush=True)
    found = [done[one] for one in wanted(cells) if one in done]
    limits = composed("audit", ["runs=[none]"])["thresholds"]
    print(f"{half}: {len(found)} of {len(wanted(cells))} networks, limits of conf/audit_limits.yaml")
    print(*report(found, limits), sep="\n")
    if half == "choosing":
        best = chosen(found, limits)
        print(f"best limits {best}: right {share(right(found, best), len(found))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
