"""Evaluations of stored runs, from the command line and from Python: cached, shared, and clear when wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from lmsweep.audit import audit
from lmsweep.cli import config_folder
from lmsweep.config import parse
from lmsweep.errors import ConfigError, UserError
from lmsweep.evaluation.attack import evaluate
from lmsweep.evaluation.command import hydra_arguments
from lmsweep.evaluation.config import AuditConfig, EvaluationConfig, parse_as
from lmsweep.evaluation.runs import cross_entropy_source, find_run
from lmsweep.sweep.execute import execute

TRAINING = ("trainer.max_steps=120", "trainer.val_every=60", "optimizer.lr=0.05", "model.width=8")
FEW = ("attack.epsilons=[0,0.1,0.2]", "attack.alpha=0.05", "samples=120")


def composed(name: str, outputs: Path, *overrides: str):
    with initialize_config_dir(config_folder(), version_base="1.3"):
        return OmegaConf.to_container(compose(name, [f"outputs={outputs}", *overrides]), resolve=True)


def request(outputs: Path, *overrides: str) -> EvaluationConfig:
    return parse_as(EvaluationConfig, composed("evaluation", outputs, *overrides))


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """Two cross-entropy runs and a margin run of one cell, and a cross-entropy run of another."""
    outputs = tmp_path_factory.mktemp("store")
    wanted = {
        "xent0": ("method=xent", "seed=0"),
        "xent1": ("method=xent", "seed=1"),
        "margin0": ("method=margin_linf_all", "margin.gamma=0.1", "seed=0"),
        "elsewhere": ("method=xent", "seed=2", "data.fraction=0.5"),
    }
    return outputs, {
        name: execute(parse(composed("config", outputs, *TRAINING, *keys)))[0].id
        for name, keys in wanted.items()
    }


def command(module: str, *arguments: str, outputs: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "LMSWEEP_OUTPUTS": str(outputs)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def named(ids: dict[str, str], *names: str) -> str:
    return "runs=[" + ",".join(f"'{ids[name]}'" for name in names) + "]"


def test_a_white_box_evaluation_leaves_its_files_and_is_cached(runs):
    outputs, ids = runs
    config = request(outputs, named(ids, "xent0"), *FEW)
    ((job, folder, results),) = evaluate(config)
    assert folder.path == outputs / "evaluations" / job.id
    assert sorted(p.name for p in folder.path.iterdir()) == ["config.yaml", "results.json", "status.json"]
    written = yaml.safe_load(folder.config.read_text())
    assert written["target"] == written["source"] == ids["xent0"]
    assert written["attack"]["epsilons"] == [0, 0.1, 0.2]
    assert written["attack"]["clip_pixels"] is True
    assert "queries" not in written["attack"]
    assert (results["method"], results["samples"], results["unit"]) == ("xent", 120, "epsilon")
    assert results["accuracy"][0] == results["clean_accuracy"]
    assert results["accuracy"][2] < results["accuracy"][0]
    stamp = folder.results.stat().st_mtime_ns
    ((again, _, same),) = evaluate(config)
    assert (again.id, same) == (job.id, results)
    assert folder.results.stat().st_mtime_ns == stamp


def test_identity_counts_what_can_change_the_curve_and_nothing_else(runs):
    outputs, ids = runs

    def identity(*more: str) -> dict:
        return request(outputs, named(ids, "xent0"), *more).attack_identity(transfer=False)

    assert identity("attack.queries=5", "attack.stddevs=[9]", "seed=3", "threads=2") == identity()
    assert identity("attack.loss=margin") != identity()
    assert identity("attack.epsilons=[0.5]") != identity()
    assert identity("attack.clip_pixels=false") != identity()
    assert identity("attack=pgd", "seed=3") != identity("attack=pgd")
    assert identity("attack=gaussian", "attack.epsilons=[7]") == identity("attack=gaussian")
    assert "epsilons" not in identity("attack=fgsm_snr")["attack"]
    assert identity("attack=fgsm_snr")["attack"]["snrs"][-1] == 33
    # Examples of a given SNR are never stopped early, whatever the key says.
    assert identity("attack=fgsm_snr", "attack.early_stop=false") == identity("attack=fgsm_snr")


def test_every_file_in_conf_attack_can_be_run(runs):
    outputs, ids = runs
    for file in sorted(Path(config_folder(), "attack").glob("*.yaml")):
        few = ("samples=20", "attack.queries=5", "attack.epsilons=[0.1]", "attack.restarts=1")
        ((_, _, results),) = evaluate(request(outputs, named(ids, "xent0"), f"attack={file.stem}", *few))
        assert len(results["accuracy"]) == len(results["strengths"]) > 0


def test_the_matrix_shares_its_pairs_and_its_diagonal_is_white_box(runs):
    outputs, ids = runs
    last = (*FEW, "attack.early_stop=false")
    found = evaluate(request(outputs, named(ids, "xent0", "xent1", "margin0"), "source=all", *last))
    matrix = {(job.source.id, job.target.id): (job.id, results["accuracy"]) for job, _, results in found}
    assert len(matrix) == 9
    for name in ("xent0", "xent1", "margin0"):
        ((job, _, results),) = evaluate(request(outputs, named(ids, name), *last))
        assert matrix[ids[name], ids[name]] == (job.id, results["accuracy"])
    ((pair, _, results),) = evaluate(request(outputs, named(ids, "margin0"), "source=xent", *FEW))
    assert matrix[ids["xent1"], ids["margin0"]] == (pair.id, results["accuracy"])
    assert results["source_method"] == "xent"


def test_the_default_source_is_the_cross_entropy_run_of_the_cell_with_another_seed(runs):
    outputs, ids = runs
    for target, source in {"margin0": "xent1", "xent0": "xent1", "xent1": "xent0"}.items():
        assert cross_entropy_source(outputs, find_run(outputs, ids[target])).id == ids[source]
    with pytest.raises(UserError, match="method=xent and seed=3"):
        cross_entropy_source(outputs, find_run(outputs, ids["elsewhere"]))


def test_runs_are_found_by_id_beginning_and_folder(runs, tmp_path):
    outputs, ids = runs
    name = ids["xent0"]
    for text in (name, name[:8], str(outputs / "runs" / name)):
        assert find_run(outputs, text).id == name
    with pytest.raises(UserError, match="There is no run nope"):
        find_run(outputs, "nope")
    with pytest.raises(UserError, match="is the beginning of 4 runs"):
        find_run(outputs, "")
    status = json.loads((outputs / "runs" / name / "status.json").read_text())
    (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / name / "status.json").write_text(json.dumps({**status, "state": "failed"}))
    with pytest.raises(UserError, match="not finished"):
        find_run(tmp_path, name)


BAD = {
    "runs=[]": "no run to evaluate",
    "attack.epsilons=[-1]": "attack.epsilons=-1 is not allowed: it must be a list of numbers >= 0",
    "attack.steps=3": "at least epsilon / alpha",
    "attack.snrs=[33] attack.kind=pgd": "attack.snrs is not allowed with attack.kind=pgd",
    "attack.kind=pgd": "attack.steps=null is not allowed with attack.kind=pgd",
    "attack.alpha=null": "attack.alpha=null is not allowed with attack.kind=ifgsm",
    "source=all attack=gaussian": "source=all is not allowed with attack.kind=gaussian",
    "source=xent split=val": "split=val is not allowed with source=xent",
    "samples=0": "samples=0 is not allowed: it must be a whole number >= 1",
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_requests_are_refused_in_one_sentence(runs, arguments):
    outputs, ids = runs
    with pytest.raises(ConfigError) as refused:
        evaluate(request(outputs, named(ids, "xent0"), *arguments.split()))
    assert BAD[arguments] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_words_without_equals_are_runs():
    assert hydra_arguments(["1e5", "attack=pgd", "--cfg", "job"]) == [
        "attack=pgd",
        "--cfg",
        "runs=['1e5','job']",
    ]
    assert hydra_arguments(["seed=3"]) == ["seed=3"]


def test_the_audit_of_a_stored_run_is_kept_with_its_verdict(runs):
    outputs, ids = runs
    keys = ("samples=100", "epsilons=[0.1,0.2]", "alpha=0.02", "pgd_steps=10", "queries=60", "restarts=1")
    config = parse_as(AuditConfig, composed("audit", outputs, named(ids, "xent0"), *keys))
    folder, results = audit(config, find_run(outputs, ids["xent0"]))
    assert results["verdict"] == "consistent", results["reasons"]
    assert results["source"] == ids["xent1"]
    assert len(results["evidence"]["transfer"]) == 2
    assert json.loads(folder.results.read_text()) == results
    done = command("lmsweep.audit", ids["xent0"], *keys, outputs=outputs)
    assert done.returncode == 0, done.stderr
    assert "Verdict: consistent" in done.stdout
    assert "search, no gradients" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (("nope",), 1, "There is no run nope in "),
        ((), 2, "There is no run to evaluate"),
        (("nope", "quereis=3"), 2, "There is no key quereis; the configuration has runs, split"),
        (
            ("nope", "thresholds.tolerance=2"),
            2,
            "thresholds.tolerance=2 is not allowed: it must be a number in",
        ),
    ],
)
def test_commands_stop_with_one_sentence(runs, arguments, status, sentence):
    done = command("lmsweep.audit", *arguments, outputs=runs[0])
    assert done.returncode == status
    assert done.stdout == ""
    assert done.stderr.startswith(sentence)
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_attack_command_prints_a_line_per_evaluation_from_the_store(runs):
    outputs, ids = runs
    keys = (*FEW, "attack=fgsm")
    evaluate(request(outputs, named(ids, "xent0", "margin0"), *keys))
    kept = sorted(p.name for p in (outputs / "evaluations").iterdir())
    done = command("lmsweep.attacks", ids["xent0"][:9], ids["margin0"], *keys, outputs=outputs)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 2
    assert "margin_linf_all" in lines[1]
    assert "fgsm from itself, accuracy by epsilon  0: " in lines[1]
    assert sorted(p.name for p in (outputs / "evaluations").iterdir()) == kept


def test_the_distances_command_draws_and_correlates(runs):
    outputs, ids = runs
    done = command(
        "lmsweep.attacks.distances",
        ids["xent0"],
        "samples=25",
        "steps=40",
        "norms=[l2,linf]",
        outputs=outputs,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 2
    picture = Path(lines[0].split("  ")[0])
    assert picture.read_bytes().startswith(b"\x89PNG")
    results = json.loads((picture.parent / "results.json").read_text())
    for values in results["distances"]:
        assert values["rank_correlation"] > 0.7
        assert len(values["linearised"]) == len(values["found"]) == values["samples"]
