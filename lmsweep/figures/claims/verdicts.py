"""The verdict on every claim of a figure, and the one table of claims that all readers show."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from lmsweep.figures.claims.kinds import Claim, Evidence, Finding
from lmsweep.figures.claims.values import NotRunError, Values
from lmsweep.figures.record import JudgedClaim
from lmsweep.figures.spec import FigureSpec
from lmsweep.figures.words import text


class ClaimRow(NamedTuple):
    """A claim as a row of text; who shows fewer columns leaves some out."""

    verdict: str
    says: str
    where: str
    paper: str
    ours: str
    n: str


HEAD = ClaimRow("verdict", "the paper says", "where", "paper", "ours", "n")


def claim_rows(claims: Iterable[JudgedClaim]) -> list[ClaimRow]:
    """One row per claim: for the terminal, the Markdown page, the HTML report and W&B's report."""
    return [ClaimRow(*(text(getattr(claim, key)) for key in ClaimRow._fields)) for claim in claims]


def check_claims(
    spec: FigureSpec,
    points: pd.DataFrame,
    scale: str,
    *,
    same_data: bool = True,
    expected: Iterable[Mapping[str, Any]] = (),
) -> list[JudgedClaim]:
    """Judge every claim of a figure by its selected points.

    Where the data is not the paper's (`same_data` is false), its numbers mean nothing and are not compared.
    `expected` are the cells of the grid: no claim about a range holds while one of them is missing.
    """
    evidence = Evidence(spec, Values(points, expected))
    return [_judged(claim, evidence, scale, same_data) for claim in spec.claims]


def _judged(claim: Claim, evidence: Evidence, scale: str, same_data: bool) -> JudgedClaim:
    try:
        if not same_data and claim.needs_the_papers_data:
            raise NotRunError(f"the {scale} scale has other data than the paper; it takes the paper scale")
        finding = claim.judge(evidence)
    except NotRunError as error:
        finding = Finding("not run", str(error), 0)
    return JudgedClaim(
        id=claim.id,
        says=claim.says,
        where=claim.where,
        kind=claim.kind,
        paper=claim.papers_number(evidence),
        scale=scale,
        **finding._asdict(),
    )
