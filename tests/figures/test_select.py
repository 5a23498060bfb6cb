"""Selection looks at validation accuracy, and at nothing else."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmsweep.errors import ConfigError
from lmsweep.figures.select import SENTENCES, best_validation, every, select
from tests.figures.examples import cell, points

A, B, C = '{"gamma": 1}', '{"gamma": 2}', '{"gamma": 3}'


def chosen(table: pd.DataFrame) -> dict[tuple[str, str, float], set[str]]:
    return {key: set(rows) for key, rows in table.groupby(["panel", "method", "x"])["setting"]}


def test_the_highest_mean_validation_accuracy_wins_per_panel_method_and_x():
    table = points(
        cell("noise", "xent", 0.0, [0.9, 0.9], [0.8, 0.6], A),
        cell("noise", "xent", 0.0, [0.1, 0.1], [0.7, 0.75], B),
        cell("noise", "xent", 0.8, [0.2, 0.2], [0.5, 0.5], A),
        cell("noise", "xent", 0.8, [0.9, 0.9], [0.4, 0.4], B),
        cell("noise", "hinge", 0.0, [0.2], [0.1], B),
    )
    assert chosen(best_validation(table)) == {
        ("noise", "xent", 0.0): {B},
        ("noise", "xent", 0.8): {A},
        ("noise", "hinge", 0.0): {B},
    }


def test_a_setting_with_a_lost_seed_is_not_eligible():
    table = points(
        cell("noise", "xent", 0.0, [0.9], [0.99], A), cell("noise", "xent", 0.0, [0.1, 0.1], [0.5, 0.4], B)
    )
    assert chosen(best_validation(table)) == {("noise", "xent", 0.0): {B}}


def test_a_validation_accuracy_that_is_no_number_is_a_lost_seed():
    table = points(
        cell("noise", "xent", 0.0, [0.9, 0.9], [0.99, np.nan], A),
        cell("noise", "xent", 0.0, [0.1, 0.1], [0.5, 0.4], B),
    )
    assert chosen(best_validation(table)) == {("noise", "xent", 0.0): {B}}


def test_ties_go_to_the_setting_that_sorts_first_in_whatever_order_seeds_come():
    vals = [0.1, 0.2, 0.3]  # (0.1 + 0.2) + 0.3 != 0.3 + 0.2 + 0.1 in floating point
    table = points(
        cell("noise", "xent", 0.0, [0.0] * 3, vals, B), cell("noise", "xent", 0.0, [0.0] * 3, vals[::-1], A)
    )
    for order in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0]):
        assert chosen(best_validation(table.iloc[order])) == {("noise", "xent", 0.0): {A}}


def test_under_attack_one_setting_is_chosen_for_all_strengths():
    strengths = (0.0, 0.1, 0.2)
    table = points(
        *(cell("white", "xent", x, [0.9 - x, 0.9 - x], [0.6, 0.6], A) for x in strengths),
        *(cell("white", "xent", x, [0.99, 0.99], [0.5, 0.5], B) for x in strengths),
    )
    assert chosen(best_validation(table)) == {("white", "xent", x): {A} for x in strengths}


def test_under_attack_a_run_counts_once_however_many_strengths_it_has():
    # Seed 1 of A (bad) was measured at one strength only; its validation accuracy counts all the same.
    table = points(
        *(cell("white", "xent", x, [0.9], [0.9], A) for x in (0.0, 0.1, 0.2)),
        cell("white", "xent", 0.0, [0.9, 0.9], [0.9, 0.1], A).iloc[1:],
        *(cell("white", "xent", x, [0.1, 0.1], [0.6, 0.6], B) for x in (0.0, 0.1, 0.2)),
    )
    assert chosen(best_validation(table)) == {("white", "xent", x): {B} for x in (0.0, 0.1, 0.2)}


@st.composite
def grids(draw: st.DrawFn) -> pd.DataFrame:
    accuracies = st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.7]), min_size=1, max_size=3)
    cells = []
    for setting in (A, B, C):
        attacked = draw(accuracies)  # the runs under attack are the same at every strength
        for x in (0.0, 0.5):
            for panel, vals in (("noise", draw(accuracies)), ("white", attacked)):
                cells.append(cell(panel, "xent", x, [0.0] * len(vals), vals, setting))
    return points(*cells)


@settings(max_examples=40)
@given(grids(), st.randoms(use_true_random=False))
def test_neither_the_result_nor_the_order_of_rows_changes_the_selection(table, random):
    kept = best_validation(table)
    other = table.assign(y=[random.choice([random.random(), np.nan]) for _ in range(len(table))])
    shuffled = other.iloc[random.sample(range(len(other)), len(other))]
    columns = ["panel", "x", "setting", "seed"]
    for changed in (other, shuffled):
        again = best_validation(changed).sort_values(columns)
        assert again[columns].to_numpy().tolist() == kept.sort_values(columns)[columns].to_numpy().tolist()


def test_all_keeps_every_point_and_refuses_to_choose():
    one = points(
        cell("noise", "xent", 0.0, [0.1, 0.2], setting=A), cell("noise", "xent", 0.5, [0.3], setting=B)
    )
    assert every(one).equals(one)
    two = points(one, cell("noise", "xent", 0.5, [0.3], setting=C))
    with pytest.raises(ConfigError, match=r"xent has 2 settings at x=0\.5 of panel noise"):
        select("all", two)


def test_every_rule_has_a_sentence():
    for rule, sentence in SENTENCES.items():
        assert sentence.endswith(".")
        assert len(select(rule, cell("noise", "xent", 0.0, [0.1, 0.2]))) == 2


def test_nothing_to_choose_from_is_nothing_chosen():
    for rule in SENTENCES:
        assert select(rule, cell("noise", "xent", 0.0, [])).empty
