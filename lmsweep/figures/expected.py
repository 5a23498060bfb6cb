"""Every cell that a figure's grid asks for, with the reason why it could be empty."""

from collections.abc import Iterator, Mapping
from typing import Any

from lmsweep.evaluation.config import EvaluationConfig
from lmsweep.figures.collect import flat
from lmsweep.figures.spec import FigureSpec
from lmsweep.sweep.expansion import Sweep


def expected_cells(
    sweep: Sweep, spec: FigureSpec, attacks: Mapping[str, EvaluationConfig]
) -> Iterator[dict[str, Any]]:
    """Panel, method, x and reason; a cell with several runs is there once, with the reason of one of them."""
    cells: dict[tuple[str, str, float], str] = {}
    for name, config in sweep.plan.runs.items():
        method = config.method_name()
        status = sweep.plan.store.run(name).read_status()
        reason = f"failed: {status['reason']}" if status.get("state") == "failed" else "not trained"
        for panel in spec.panels:
            if method not in panel.methods:
                continue
            xs: tuple[float, ...]
            if panel.x.attack is not None:
                xs = attacks[panel.x.attack].attack.strengths
                reason = "not evaluated" if status.get("state") == "done" else reason
            elif panel.x.key == "step":
                xs = (float(config.trainer.max_steps),)
            else:
                xs = (float(flat(config.to_dict())[str(panel.x.key)]),)
            for x in xs:
                cells.setdefault((panel.name, method, x), reason)
    for (panel_name, method, x), reason in cells.items():
        yield {"panel": panel_name, "method": method, "x": x, "reason": reason}
