"""The audit of a stored run: kept, judged by the thresholds of the request, and only with a fair source."""

import json

import pytest

from lmsweep.attacks import Ensemble, masking
from lmsweep.errors import ConfigError, UserError
from lmsweep.evaluation.jobs import audit_measurement, evaluation_job, judged
from lmsweep.evaluation.runs import find_run
from lmsweep.store.job import run_job
from tests.evaluation.conftest import audit_request, named
from tests.evaluation.test_commands import command

KEYS = (
    *("samples=100", "epsilons=[0.1,0.2]", "alpha=0.02", "attack.apgd_steps=20", "attack.targets=1"),
    *("attack.minimal_steps=20", "attack.queries=60", "thresholds.gap=0.15"),
    "thresholds.incomplete_optimisation=1",  # so few steps come to no rest
)


def examine(runs, name: str, *keys: str):
    outputs, ids = runs
    config = audit_request(outputs, named(ids, name), *KEYS, *keys)
    measurement, stored = audit_measurement(config, find_run(outputs, ids[name]))
    job = evaluation_job(measurement, stored)
    results = run_job(job)
    verdict, reasons = judged(config, results)
    return job.folder, {**results, "verdict": verdict, "reasons": reasons}


def test_the_audit_of_a_stored_run_is_kept_with_its_evidence(runs):
    outputs, ids = runs
    folder, results = examine(runs, "xent0")
    assert results["verdict"] == "consistent", results["reasons"]
    assert results["source"] == ids["xent1"]
    assert len(results["evidence"]["curves"]["transfer"]) == 2
    assert json.loads(folder.results.read_text())["evidence"] == results["evidence"]
    done = command("audit", ids["xent0"], *KEYS, outputs=outputs)
    assert done.returncode == 0, done.stderr
    assert "Verdict: consistent" in done.stdout
    assert "search, no gradients" in done.stdout


def test_a_threshold_changes_the_verdict_and_attacks_nothing_again(runs, monkeypatch):
    folder, before = examine(runs, "xent0")
    monkeypatch.setattr(masking, "measure", None)  # calling it would fail
    same, after = examine(runs, "xent0", "thresholds.gap=0")
    assert same.path == folder.path
    assert (before["verdict"], after["verdict"]) == ("consistent", "attack too weak to say")
    assert "worst of all attacks" in after["reasons"][0]


def test_every_key_reaches_the_measurement(runs, monkeypatch):
    seen = {}
    monkeypatch.setattr(masking, "measure", lambda *_, **options: seen.update(options) or 1 / 0)
    with pytest.raises(UserError, match="ZeroDivisionError"):
        examine(runs, "xent0", "seed=41", "unbounded_alpha=0.07", "attack.queries=61", "source=none")
    del seen["tell"], seen["remember"]
    assert seen == {
        "epsilons": [0.1, 0.2],
        "alpha": 0.02,
        "unbounded_alpha": 0.07,
        "attack": Ensemble(epsilons=(0.1, 0.2), apgd_steps=20, targets=1, minimal_steps=20, queries=61),
        "seed": 41,
        "source": None,
    }


def test_a_source_must_be_another_run_with_the_same_samples(runs):
    _, ids = runs
    with pytest.raises(ConfigError, match="is the audited run itself: it must be another run, xent or none"):
        examine(runs, "xent0", f"source='{ids['xent0'][:9]}'")
    with pytest.raises(UserError, match="they have different data"):
        examine(runs, "xent0", f"source='{ids['other_data']}'", "trust=tests")
    with pytest.raises(ConfigError, match="split=val is not allowed with examples of run"):
        examine(runs, "xent0", f"source='{ids['xent1']}'", "split=val")


def test_without_a_fair_source_of_the_cell_transfer_is_not_tested(runs):
    _, results = examine(runs, "xent0", "split=val", "samples=20", "attack.queries=2", "attack.apgd_steps=2")
    assert results["source"] is None
    assert "transfer" not in results["evidence"]["curves"]


def test_the_strong_attack_of_an_audit_can_be_autoattack(runs):
    pytest.importorskip("pyautoattack")
    outputs, ids = runs
    config = audit_request(
        outputs, named(ids, "xent0"), "attack=autoattack", "samples=12", "epsilons=[0.2]", "source=none"
    )
    measurement, stored = audit_measurement(config, find_run(outputs, ids["xent0"]))
    results = run_job(evaluation_job(measurement, stored))
    assert list(results["evidence"]["curves"]) == ["fgsm", "ifgsm", "ifgsm_log_odds", "autoattack"]
    assert results["attack"]["kind"] == "autoattack"
