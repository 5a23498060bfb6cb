"""Every cell that a figure's grid asks for, with the reason why it could be empty."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lmsweep.config.dotted import dotted
from lmsweep.config.evaluation import EvaluationConfig
from lmsweep.config.run import RunConfig
from lmsweep.config.sweeps import Sweep
from lmsweep.figures.collect import on_axis
from lmsweep.figures.spec import FigureSpec, Panel
from lmsweep.store.store import Store


def expected_cells(
    sweep: Sweep, spec: FigureSpec, attacks: Mapping[str, EvaluationConfig]
) -> Iterator[dict[str, Any]]:
    """Panel, method, x and reason; a cell with several runs is there once, with the reason of one of them."""
    cells: dict[tuple[str, str, float], str] = {}
    for panel in spec.panels:
        runs = {name: run for name, run in sweep.runs.items() if run.method_name() in panel.methods}
        for (name, run), xs in zip(runs.items(), _places(panel, runs.values(), attacks), strict=True):
            status = Store(sweep.outputs).folder(name).read_status()
            state, reason = status.get("state"), "not trained"
            if state in ("failed", "damaged"):
                reason = f"{state}: {status['reason']}"
            if panel.attack and state == "done":
                reason = "not evaluated"
            for x in xs:
                cells.setdefault((panel.name, run.method_name(), x), reason)
    for (panel_name, method, x), reason in cells.items():
        yield {"panel": panel_name, "method": method, "x": x, "reason": reason}


def _places(
    panel: Panel, runs: Collection[RunConfig], attacks: Mapping[str, EvaluationConfig]
) -> Iterable[Sequence[float]]:
    """Where on the panel's x axis each of the runs stands."""
    if panel.x.attack is not None:
        return [attacks[panel.x.attack].attack.strengths] * len(runs)
    if panel.x.key == "step":
        return [(float(run.trainer.max_steps),) for run in runs]
    return on_axis(dotted(run.identity_dict()).get(str(panel.x.key), math.nan) for run in runs)
