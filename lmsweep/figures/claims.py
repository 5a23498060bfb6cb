"""Hold a figure's numbers against the paper's statements.

A verdict is `holds`, `fails`, `not resolved` (the interval over seeds leaves it open, or there is one seed
only) or `not run` (something it needs is missing).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from lmsweep.figures.aggregate import interval
from lmsweep.figures.claim_spec import (
    AboveClaim,
    AnyClaim,
    GapClaim,
    GreaterClaim,
    RatioClaim,
    Side,
    StatementClaim,
    TrendClaim,
    ValueClaim,
)
from lmsweep.figures.comparison import Comparison, NotRunError, Values, compare, paired, slopes
from lmsweep.figures.spec import FigureSpec
from lmsweep.figures.style import method_style
from lmsweep.figures.words import amount, place, summary, with_interval

Finding = tuple[str, str, int]  # verdict, our numbers in words, n


def check_claims(
    spec: FigureSpec,
    points: pd.DataFrame,
    cost: pd.DataFrame | None,
    scale: str,
    *,
    same_data: bool = True,
    expected: Iterable[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """The verdict on every claim of a figure, from its selected points and its cost table.

    Where the data is not the paper's (`same_data` is false), its numbers mean nothing and are not compared.
    `expected` are the cells of the grid: no claim about a range holds while one of them is missing.
    """
    values = Values(points, expected)
    return [check_claim(claim, spec, values, cost, scale, same_data=same_data) for claim in spec.claims]


def check_claim(
    claim: AnyClaim,
    spec: FigureSpec,
    values: Values,
    cost: pd.DataFrame | None,
    scale: str,
    *,
    same_data: bool = True,
) -> dict[str, Any]:
    """The verdict on one claim."""
    try:
        if not same_data and _needs_the_papers_data(claim):
            raise NotRunError(f"the {scale} scale has other data than the paper")
        verdict, ours, n = _find(claim, spec, values, cost)
    except NotRunError as error:
        verdict, ours, n = "not run", str(error), 0
    paper = claim.paper
    if isinstance(claim, ValueClaim):
        paper = amount(claim.paper, spec.panel(claim.panel).y.unit)
    elif isinstance(claim, RatioClaim) and paper == "":
        paper = f"{claim.low:g} to {claim.high:g}"
    return {
        "id": claim.id,
        "says": claim.says,
        "where": claim.where,
        "kind": claim.kind,
        "verdict": verdict,
        "ours": ours,
        "paper": f"{paper:g}" if isinstance(paper, float) else paper,
        "n": n,
        "scale": scale,
    }


def _needs_the_papers_data(claim: AnyClaim) -> bool:
    """Whether numbers of the paper are compared, and not only which of two methods is ahead."""
    return isinstance(claim, ValueClaim | AboveClaim) or (isinstance(claim, GreaterClaim) and claim.by != 0)


def _find(claim: AnyClaim, spec: FigureSpec, values: Values, cost: pd.DataFrame | None) -> Finding:
    if isinstance(claim, StatementClaim):
        raise NotRunError(claim.reason)
    if isinstance(claim, RatioClaim):
        return _ratio(claim, cost)
    name = f"{spec.name}/{claim.id}"
    if isinstance(claim, ValueClaim):
        return _value(claim, spec, values, name)
    panel = spec.panel(claim.panel)
    if isinstance(claim, AboveClaim):
        found = [
            _above(claim, side, x, than, values, name) for side in claim.methods for x, than in claim.points
        ]
        return _judge(found, 0.0, summary(found, 0.0, panel))
    by, per = 0.0, ""
    gone: set[float] = set()
    if isinstance(claim, TrendClaim):
        found = []
        for pair in claim.pairs:
            comparison, absent = _trend(claim, pair, values, name)
            found.append(comparison)
            gone |= absent
        per = f" per step toward {claim.toward} x"
    elif isinstance(claim, GapClaim):
        found, gone = _gap(claim, values, name)
    else:
        found, gone = _greater(claim, values, name)
        by = claim.by
    return _judge(found, by, summary(found, by, panel, per) + _note(gone, panel.x.unit), gone)


def _judge(found: Sequence[Comparison], threshold: float, ours: str, gone: Collection[float] = ()) -> Finding:
    verdicts = {comparison.verdict(threshold) for comparison in found}
    verdict = "fails" if "fails" in verdicts else "holds" if verdicts == {"holds"} else "not resolved"
    if gone and verdict == "holds":
        verdict = "not resolved"  # nobody knows what the missing cells would say
    return verdict, ours, min(comparison.n for comparison in found)


def _value(claim: ValueClaim, spec: FigureSpec, values: Values, name: str) -> Finding:
    panel = spec.panel(claim.panel)
    xs, _ = _places(claim.at, values, [(claim.panel, claim.method)])
    found = []
    for x in xs:
        method, y = values.best(claim.panel, claim.method, x)
        low, high = interval(y.to_numpy(dtype=float), f"{name}/{x!r}")
        found.append(Comparison(method, x, float(y.mean()), low, high, len(y)))
    verdicts = {_value_verdict(c, claim.paper, claim.tolerance) for c in found}
    verdict = "fails" if "fails" in verdicts else "holds" if verdicts == {"holds"} else "not resolved"
    ours = "; ".join(
        f"{method_style(c.what).label} {with_interval(c, panel.y.unit)}{place(c.x, panel.x.unit)}"
        for c in found
    )
    return verdict, ours, min(c.n for c in found)


def _value_verdict(ours: Comparison, paper: float, tolerance: float) -> str:
    low, high = paper - tolerance, paper + tolerance
    if ours.n < 2:
        return "not resolved"
    if ours.high < low or ours.low > high:
        return "fails"
    return "holds" if low <= ours.mean <= high else "not resolved"


def _above(claim: AboveClaim, side: Side, x: float, than: float, values: Values, name: str) -> Comparison:
    method, y = values.best(claim.panel, side, x)
    label = method_style(method).label
    return compare(label, y - than, f"{name}/{label}", x)


def _greater(claim: GreaterClaim, values: Values, name: str) -> tuple[list[Comparison], set[float]]:
    found: list[Comparison] = []
    gone: set[float] = set()
    for left, right in claim.pairs:
        sides = list(zip(claim.panels, (left, right), strict=True))
        xs, absent = _places(claim.at, values, sides)
        gone |= absent
        if claim.aggregate == "mean":  # one model over the whole range, not another one at each x
            left, right = (values.steady(panel, side, xs) for panel, side in sides)
        pairs = [values.difference(claim.panels, left, right, x) for x in xs]
        if claim.aggregate == "mean":
            what, frame = pairs[0][0], pd.concat([y for _, y in pairs], axis=1)
            averages = paired(what, frame.mean(axis=1, skipna=False))
            found.append(compare(what, averages, name, xs[0] if len(xs) == 1 else None))
        else:
            found += [compare(what, y, name, x) for (what, y), x in zip(pairs, xs, strict=True)]
    return found, gone


def _trend(
    claim: TrendClaim, pair: tuple[Side, Side], values: Values, name: str
) -> tuple[Comparison, set[float]]:
    xs, gone = _places(claim.at, values, [(claim.panel, side) for side in pair])
    if len(xs) < 2:
        raise NotRunError("A trend needs two or more x that both methods have.")
    panels = (claim.panel, claim.panel)
    pairs = [values.difference(panels, *pair, x) for x in xs]
    frame = pd.concat([y for _, y in pairs], axis=1).dropna()
    if frame.empty:
        raise NotRunError(f"{pairs[0][0]}: no seed has every x.")
    slope = slopes(frame)
    return compare(pairs[0][0], slope if claim.toward == "high" else -slope, name), gone


def _gap(claim: GapClaim, values: Values, name: str) -> tuple[list[Comparison], set[float]]:
    one, two = claim.panel, claim.panel2 or claim.panel
    sides = [(one, claim.left), (one, claim.right), (two, claim.left2), (two, claim.right2)]
    xs, gone = _places(claim.at, values, sides)
    found = []
    for x in xs:
        what, smaller = values.difference((one, one), claim.left, claim.right, x)
        what2, larger = values.difference((two, two), claim.left2, claim.right2, x)
        both = f"the lead of {what2} less that of {what}"
        found.append(compare(both, paired(both, larger - smaller), name, x))
    return found, gone


def _ratio(claim: RatioClaim, cost: pd.DataFrame | None) -> Finding:
    """The cost table has one mean per method, so there is no interval; one run still resolves nothing."""
    rows = [] if cost is None else zip(cost["method"], cost["seconds_per_step"], cost["n"], strict=True)
    found = {method: (float(seconds), int(n)) for method, seconds, n in rows}
    for method in (claim.left, claim.right):
        if method not in found:
            raise NotRunError(f"{method_style(method).label} is not in the cost table.")
    (left, n_left), (right, n_right) = found[claim.left], found[claim.right]
    ratio, n = left / right, min(n_left, n_right)
    inside = claim.low <= ratio <= claim.high
    verdict = "not resolved" if n < 2 else "holds" if inside else "fails"
    return verdict, f"{ratio:.2f} times the cost of {method_style(claim.right).label} per step", n


def _places(
    at: str | list[float], values: Values, sides: Sequence[tuple[str, Side]]
) -> tuple[list[float], set[float]]:
    """The x to look at, ascending; with `all`, also those of the panels that not every side has."""
    if isinstance(at, list):
        return sorted(at), set()
    shared = set.intersection(*(values.xs(panel, side) for panel, side in sides))
    if not shared:
        raise NotRunError("There is no x at which all of the methods have a value.")
    if at != "all":
        every = values.every_x(*(panel for panel, _ in sides))
        return [min(every) if at == "lowest" else max(every)], set()
    return sorted(shared), values.every_x(*(panel for panel, _ in sides)) - shared


def _note(gone: set[float], unit: str) -> str:
    if not gone:
        return ""
    return "; missing" + ",".join(place(x, unit) for x in sorted(gone))
