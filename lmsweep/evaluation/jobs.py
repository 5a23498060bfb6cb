"""Evaluations as jobs: what is measured of stored runs, kept and run like any other job."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from lmsweep.config.evaluation import Measurement
from lmsweep.evaluation.runs import StoredRun
from lmsweep.provenance import provenance
from lmsweep.store.folder import JobFolder
from lmsweep.store.job import Job, Needs, Results, Work

Runs = Mapping[str, StoredRun]
Mirror = Callable[[Results], None]  # is told the results of a new measurement


def evaluation_job(measurement: Measurement, runs: Runs, mirror: Mirror | None = None) -> Job:
    """The job of a measurement; `runs` are the stored runs it names, by id."""
    config = measurement.config
    runs = {name: runs[name] for name in measurement.runs}
    methods = dict.fromkeys(runs[name].config.method_name() for name in measurement.targets)
    target = runs[measurement.targets[0]].config
    about: dict[str, Any] = {
        "method": ", ".join(methods),
        "data": target.data.name,
        "kind": measurement.kind,
        "target": " ".join(measurement.targets),
        "seed": target.seed,
    }
    return Job(
        kind=measurement.kind,
        id=measurement.id,
        outputs=config.outputs,
        config=measurement.frozen,
        about=about,
        begin=partial(_evaluation, measurement, runs, mirror),
        summary=_summary,
        needs=Needs(config.accelerator, config.threads),
        preload=("lmsweep.training.preload",),
    )


@contextmanager
def _evaluation(measurement: Measurement, runs: Runs, mirror: Mirror | None) -> Iterator[Work]:
    found: list[Results] = []

    def work(folder: JobFolder) -> Results:
        started = time.time()
        values = _measure(measurement, runs, folder)
        methods = {name: runs[name].config.method_name() for name in measurement.runs}
        results = {
            "id": measurement.id,
            **measurement.frozen,
            "methods": methods,
            **values,
            "seconds": time.time() - started,
            "provenance": provenance(),
        }
        found.append(results)
        return results

    yield work
    if mirror and found:  # what was there already has been mirrored before
        mirror(found[0])


def _measure(measurement: Measurement, runs: Runs, folder: JobFolder) -> Results:
    # These import torch, which a list of jobs does not need.
    if measurement.kind == "attack":
        from lmsweep.evaluation.attack import measure_attack

        return measure_attack(measurement, runs)
    if measurement.kind == "audit":
        from lmsweep.evaluation.audit import measure_audit

        return measure_audit(measurement, runs)
    if measurement.kind == "distances":
        from lmsweep.evaluation.distances import measure_distances

        return measure_distances(measurement, runs, folder)
    from lmsweep.evaluation.regions import measure_regions

    return measure_regions(measurement, runs, folder)


def _summary(results: Results) -> str:
    """What was found, in a few words."""
    if "curves" in results:
        curve = next(iter(results["curves"].values()))
        points = zip(curve["strengths"], curve["accuracy"], strict=True)
        return "  ".join(f"{strength:g}: {accuracy:.1%}" for strength, accuracy in points)
    return str(results["kind"])
