"""Verdicts on tables made by hand."""

import json

import pytest

from lmsweep.figures.make import check_claims
from lmsweep.figures.record import HEAD, claim_rows
from lmsweep.figures.words import NOTHING
from tests.figures.examples import GREATER, VALUE, cell, figure, points

PLAIN = {key: VALUE[key] for key in ("id", "says", "where", "panel")}
L2_AT_80 = {**VALUE, "method": "margin_l2_all", "at": 0.8, "paper": 0.964, "tolerance": 0.01}


def found(claim, *cells, **changes):
    (verdict,) = check_claims(figure(claim, **changes), points(*cells), "smoke")
    return verdict


def verdict(claim, *cells, **more):
    return found(claim, *cells, **more).verdict


def pair(x, xent, margin, panel="noise", method="margin_l2_all"):
    return cell(panel, "xent", x, xent), cell(panel, method, x, margin)


@pytest.mark.parametrize(
    ("ys", "expected"),
    [
        ([0.963, 0.964, 0.965], "holds"),
        ([0.954, 0.964, 0.974], "not resolved"),  # the mean is within the tolerance, its interval is not
        ([0.940, 0.956, 0.948], "not resolved"),
        ([0.930, 0.931, 0.932], "fails"),
        ([0.980, 0.981, 0.982], "fails"),
        ([0.964, 0.964], "not resolved"),  # too few seeds
        ([0.100], "not resolved"),
    ],
)
def test_value(ys, expected):
    assert verdict(L2_AT_80, cell("noise", "margin_l2_all", 0.8, ys)) == expected


def test_a_value_is_told_with_interval_paper_n_and_scale():
    result = found(L2_AT_80, cell("noise", "margin_l2_all", 0.8, [0.963, 0.964, 0.965]))
    assert result.model_dump() == {
        **{"id": "v", "says": "It is so.", "where": "Sec. 4", "kind": "value", "verdict": "holds"},
        **{"ours": "Margin l2, all layers 96.4% [96.2, 96.6] at 80%", "paper": "96.4%", "n": 3},
        "scale": "smoke",
    }


def test_the_best_of_several_methods_has_a_value():
    claim = {**L2_AT_80, "method": ["margin_l1_all", "margin_l2_all"], "paper": 0.9}
    cells = (
        cell("noise", "margin_l1_all", 0.8, [0.9, 0.9, 0.9]),
        cell("noise", "margin_l2_all", 0.8, [0.5, 0.6, 0.5]),
    )
    assert verdict(claim, *cells) == "holds"
    assert verdict(claim, cells[0]) == "not run"


def test_a_value_that_is_missing_is_not_run():
    result = found(L2_AT_80, cell("noise", "margin_l2_all", 0.6, [0.9, 0.9]))
    assert (result.verdict, result.n) == ("not run", 0)
    assert result.ours == "Margin l2, all layers has no value at x = 0.8 in panel noise."


BASE = [0.5, 0.6, 0.7]


def leading(x, *leads, **more):
    """Cross-entropy, and a margin that leads by so much with each seed."""
    return pair(x, BASE, [base + lead for base, lead in zip(BASE, leads, strict=True)], **more)


def test_greater_holds_at_every_x_or_not_at_all():
    better = [leading(x, 0.2, 0.2, 0.19) for x in (0.0, 0.4)]
    overlapping, worse = leading(0.8, 0.1, -0.05, 0.0), leading(0.8, -0.1, -0.1, -0.11)
    assert verdict(GREATER, *better[0], *better[1]) == "holds"
    assert verdict(GREATER, *better[0], *better[1], *overlapping) == "not resolved"
    assert verdict(GREATER, *better[0], *better[1], *worse) == "fails"
    assert verdict({**GREATER, "at": [0.4, 0]}, *better[0], *better[1], *worse) == "holds"
    assert verdict({**GREATER, "at": 0.8}, *better[0], *better[1], *worse) == "fails"
    assert verdict({**GREATER, "at": "lowest"}, *better[0], *worse) == "holds"
    assert verdict({**GREATER, "at": "highest"}, *better[0], *worse) == "fails"


def test_one_failure_of_many_may_be_chance():
    # -0.02 +- 4.3027 * 0.0075 / sqrt(3) = 0.0186 fails alone; one of four has 0.0186 * 8.86 / 4.30.
    worse = leading(0.8, -0.02, -0.0275, -0.0125)
    better = [c for x in (0.0, 0.2, 0.4) for c in leading(x, 0.2, 0.2, 0.19)]
    assert verdict({**GREATER, "at": 0.8}, *better, *worse) == "fails"
    result = found(GREATER, *better, *worse)
    assert result.verdict == "not resolved"
    assert result.ours.endswith("of 4 comparisons one may fail so far by chance")


def test_the_weakest_comparison_is_told_and_how_many_hold():
    cells = (*leading(0.0, 0.2, 0.2, 0.2), *leading(0.8, 0.01, -0.01, 0.0))
    result = found(GREATER, *cells)
    assert result.ours == "weakest 0.0% [-2.5, 2.5] at 80%; holds at 1 of 2 points"
    assert found({**GREATER, "at": 0}, *cells).ours == "+20.0% [20.0, 20.0] at 0%"


def test_with_several_pairs_the_weakest_is_named():
    claim = {**GREATER, "pairs": [["margin_l1_all", "xent"], ["margin_l2_all", "xent"]]}
    result = found(claim, *leading(0, 0.2, 0.2, 0.2), cell("noise", "margin_l1_all", 0, [0.4, 0.5, 0.6]))
    assert result.verdict == "fails"
    assert result.ours == (
        "weakest -10.0% [-10.0, -10.0] at 0% (Margin l1, all layers against Cross-entropy); "
        "holds at 1 of 2 comparisons"
    )


def test_greater_by_more_than_a_threshold():
    cells = leading(0.8, 0.03, 0.031, 0.029)
    assert [verdict({**GREATER, "by": by}, *cells) for by in (0.01, 0.03, 0.05)] == [
        *("holds", "not resolved", "fails"),
    ]


@pytest.mark.parametrize("n", [1, 2])
def test_too_few_seeds_resolve_nothing_and_have_no_interval(n):
    for margin in (0.9, 0.1):
        result = found(GREATER, *pair(0.8, [0.5] * n, [margin] * n))
        assert (result.verdict, result.n) == ("not resolved", n)
        assert "[" not in result.ours
        assert result.ours.endswith("too few seeds")


def test_n_is_the_least_number_of_common_seeds():
    cells = (*pair(0.0, [0.5, 0.6, 0.7], [0.7, 0.8, 0.9]), *pair(0.8, [0.5, 0.6, 0.7], [0.8, 0.9]))
    assert found(GREATER, *cells).n == 2


def test_x_that_only_one_has_are_told():
    result = found(GREATER, *leading(0.0, 0.2, 0.2, 0.2), cell("noise", "xent", 0.8, [0.1, 0.2, 0.3]))
    assert result.verdict == "not resolved"
    assert result.ours.endswith("; missing at 80%")
    assert verdict({**GREATER, "at": [0.0, 0.8]}, cell("noise", "xent", 0.8, [0.1])) == "not run"
    assert verdict(GREATER, cell("noise", "xent", 0.8, [0.1, 0.2])) == "not run"
    at_the_end = {**GREATER, "at": "highest"}
    cells = (*pair(0.0, [0.5, 0.6], [0.7, 0.8]), cell("noise", "xent", 0.8, [0.1, 0.2]))
    assert verdict(at_the_end, *cells) == "not run"


def test_the_average_over_x_can_hold_where_a_point_fails():
    cells = (*leading(0.0, 0.4, 0.39, 0.41), *leading(0.8, -0.1, -0.1, -0.1))
    assert verdict(GREATER, *cells) == "fails"
    result = found({**GREATER, "aggregate": "mean"}, *cells)  # +- 4.3027 * 0.005 / sqrt(3)
    assert (result.verdict, result.ours) == ("holds", "+15.0% [13.8, 16.2]")


def test_the_average_takes_seeds_that_have_every_x():
    cells = (*pair(0.0, [0.5, 0.6, 0.1], [0.9, 0.9, 0.9]), *pair(0.8, [0.5, 0.6], [0.6, 0.7]))
    assert found({**GREATER, "aggregate": "mean"}, *cells).n == 2


def test_sides_can_be_in_different_panels():
    claim = {**GREATER, "panel": "noise", "right_panel": "white"}
    cells = (cell("noise", "margin_l2_all", 0.1, [0.9] * 3), cell("white", "xent", 0.1, [0.1, 0.2, 0.1]))
    decoys = (cell("white", "margin_l2_all", 0.1, [0.0] * 3), cell("noise", "xent", 0.1, [1.0] * 3))
    assert verdict(claim, *cells, *decoys) == "holds"


TREND = {**PLAIN, "kind": "trend", "pairs": [["margin_l2_all", "xent"]], "toward": "high"}


def test_trend_has_a_direction_and_an_interval():
    leads = {0.0: [0.0, 0.01, 0.0], 0.4: [0.02, 0.05, 0.04], 0.8: [0.1, 0.1, 0.1]}
    cells = [c for x, ys in leads.items() for c in pair(x, [0.0] * 3, ys)]
    assert verdict(TREND, *cells) == "holds"
    assert verdict({**TREND, "toward": "low"}, *cells) == "fails"
    crossing = {0.0: [0.0, 0.1, 0.0], 0.8: [0.1, 0.0, 0.1]}
    assert verdict(TREND, *(c for x, ys in crossing.items() for c in pair(x, [0] * 3, ys))) == "not resolved"
    assert verdict(TREND, *pair(0.0, [0.0] * 3, [0.1] * 3)) == "not run"


def test_trend_goes_over_ranks_not_distances():
    leads = {0.00125: 0.3, 0.01: 0.2, 1.0: 0.1}
    cells = [c for x, y in leads.items() for c in pair(x, [0.0] * 3, [y] * 3)]
    result = found({**TREND, "toward": "low"}, *cells)
    assert (result.verdict, result.ours) == ("holds", "+10.0% [10.0, 10.0] per step toward low x")


GAP = {
    **{**PLAIN, "kind": "gap", "left": "margin_l2_all", "right": "xent", "panel2": "white"},
    **{"left2": "margin_l2_all", "right2": "xent", "at": 0.1},
}


def test_gap_is_smaller():
    small, large = leading(0.1, 0.02, 0.03, 0.02), leading(0.1, 0.3, 0.3, 0.3, panel="white")
    assert verdict(GAP, *small, *large) == "holds"
    turned = {**GAP, "panel": "white", "panel2": "noise"}
    assert verdict(turned, *small, *large) == "fails"
    assert verdict(GAP, *small) == "not run"


RATIO = {**{k: PLAIN[k] for k in ("id", "says", "where")}, "kind": "ratio", "bench": "step", "low": 1.2}


@pytest.mark.parametrize(
    ("low", "high", "repeats", "expected"),
    [
        (1.3, 1.5, 9, "holds"),
        (1.1, 1.5, 9, "not resolved"),
        (1.5, 1.7, 9, "not resolved"),
        (1.7, 1.8, 9, "fails"),
        (0.9, 1.1, 9, "fails"),
        (1.3, 1.5, 2, "not resolved"),
    ],
)
def test_ratio(monkeypatch, tmp_path, low, high, repeats, expected):
    """Costs are what `make bench` measured side by side; the times of runs are not asked."""
    where = {"repeats": repeats, "environment": {"machine": {"gpus": [], "cpu": "Z80"}}}
    rows = {
        "step": {"value": 1.4, "low": low, "high": high, **where},
        "half": {"value": 0.5, "low": 0.5, "high": 0.5, **where},
    }
    (tmp_path / "bench.json").write_text(json.dumps(rows))
    monkeypatch.setattr("lmsweep.figures.claims.COSTS", tmp_path / "bench.json")
    cells = pair(0, [0.1], [0.1])
    result = found({**RATIO, "high": 1.6}, *cells)
    assert (result.verdict, result.paper, result.n) == (expected, "1.2 to 1.6", repeats)
    twice = found({**RATIO, "over": "half", "low": 2.4, "high": 3.2}, *cells)
    assert (twice.verdict, twice.ours) == (
        expected,
        f"2.80 times [{2 * low:.2f}, {2 * high:.2f}], by make bench on Z80",
    )
    assert verdict({**RATIO, "bench": "other"}, *cells) == "not run"


def test_a_statement_is_never_run():
    claim = {
        **{k: PLAIN[k] for k in ("id", "says", "where")},
        "kind": "statement",
        "reason": "It needs a P100.",
    }
    result = found(claim, *pair(0, [0.1], [0.1]))
    assert (result.verdict, result.ours) == ("not run", "It needs a P100.")


def test_verdicts_do_not_depend_on_the_order_of_rows():
    table = points(*pair(0.0, [0.5, 0.6, 0.4], [0.7, 0.4, 0.6]), *pair(0.8, [0.5, 0.6, 0.1], [0.6, 0.5, 0.3]))
    spec = figure(GREATER, {**L2_AT_80, "id": "w"}, {**TREND, "id": "t"})
    one = check_claims(spec, table, "smoke")
    assert check_claims(spec, table.sample(frac=1, random_state=3), "smoke") == one


def test_without_any_point_nothing_is_run():
    assert verdict(GREATER, cell("noise", "xent", 0, [])) == "not run"


ABOVE = {**PLAIN, "kind": "above", "methods": ["margin_l2_all"], "points": [[0.4, 0.9], [0.8, 0.7]]}


@pytest.mark.parametrize(
    ("at_40", "at_80", "expected"),
    [
        ([0.92, 0.93, 0.92], [0.74, 0.75, 0.74], "holds"),
        ([0.92, 0.93, 0.92], [0.60, 0.61, 0.60], "fails"),
        ([0.89, 0.93, 0.91], [0.74, 0.75, 0.74], "not resolved"),
        ([0.95], [0.95], "not resolved"),
    ],
)
def test_above_published_points(at_40, at_80, expected):
    cells = (cell("noise", "margin_l2_all", 0.4, at_40), cell("noise", "margin_l2_all", 0.8, at_80))
    assert verdict(ABOVE, *cells) == expected
    assert verdict(ABOVE, cells[0]) == "not run"


def test_published_values_are_not_compared_with_other_data():
    for claim in (ABOVE, L2_AT_80):
        cells = (
            cell("noise", "margin_l2_all", 0.4, [1, 1, 1]),
            cell("noise", "margin_l2_all", 0.8, [1, 1, 1]),
        )
        (result,) = check_claims(figure(claim), points(*cells), "smoke", same_data=False)
        assert result.verdict == "not run"
        assert result.ours == "the smoke scale has other data than the paper; it takes the paper scale"


def missing_at(*xs, panel="noise"):
    return [{"panel": panel, "method": "xent", "x": x} for x in xs]


@pytest.mark.parametrize("kind", [GREATER, {**GREATER, "kind": "trend", "toward": "high"}])
def test_no_claim_about_a_range_holds_while_a_part_of_it_is_missing(kind):
    cells = [*leading(0.0, 0.1, 0.1, 0.1), *leading(0.2, 0.3, 0.3, 0.3)]
    for expected, verdict_ in ((missing_at(0.0, 0.2), "holds"), (missing_at(0.0, 0.2, 0.8), "not resolved")):
        (result,) = check_claims(figure(kind), points(*cells), "smoke", expected=expected)
        assert result.verdict == verdict_, result
    assert "missing at 80%" in result.ours


def test_the_lowest_x_is_that_of_the_grid():
    cells = leading(0.2, 0.3, 0.3, 0.3)
    claim = {**GREATER, "at": "lowest"}
    (there,) = check_claims(figure(claim), points(*cells), "smoke", expected=missing_at(0.2))
    (gone,) = check_claims(figure(claim), points(*cells), "smoke", expected=missing_at(0.0, 0.2))
    assert (there.verdict, gone.verdict) == ("holds", "not run")


def test_the_best_on_average_is_one_model():
    # Each margin is ahead of 0.5 at one x and far behind at the other: no single one is ahead on average.
    cells = [
        *(cell("noise", "margin_l1_all", x, ys) for x, ys in ((0.0, [0.7] * 3), (0.4, [0.1] * 3))),
        *(cell("noise", "margin_l2_all", x, ys) for x, ys in ((0.0, [0.1] * 3), (0.4, [0.7] * 3))),
        *(cell("noise", "xent", x, [0.5] * 3) for x in (0.0, 0.4)),
    ]
    claim = {**GREATER, "pairs": [[["margin_l1_all", "margin_l2_all"], "xent"]], "aggregate": "mean"}
    assert verdict(claim, *cells) == "fails"


def test_gains_in_points_are_not_compared_with_other_data():
    cells = leading(0.8, 0.3, 0.3, 0.3)
    for by, expected in ((0.0, "holds"), (0.1, "not run"), (-0.01, "holds")):  # a tolerance is ours
        claim = {**GREATER, "at": 0.8, "by": by}
        (result,) = check_claims(figure(claim), points(*cells), "smoke", same_data=False)
        assert result.verdict == expected


def test_rows_have_the_cells_of_every_claim_as_text():
    cells = (cell("noise", "margin_l2_all", 0.8, [0.963, 0.964, 0.965]),)
    claims = check_claims(figure(L2_AT_80, {**GREATER, "id": "g", "paper": ""}), points(*cells), "smoke")
    value, missing = claim_rows(claims)
    assert value == (
        *("holds", "It is so.", "Sec. 4", "96.4%", "Margin l2, all layers 96.4% [96.2, 96.6] at 80%", "3"),
    )
    assert (missing.verdict, missing.paper, missing.n) == ("not run", NOTHING, "0")
    assert len(HEAD) == len(value)
