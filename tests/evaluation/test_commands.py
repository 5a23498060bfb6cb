"""Evaluations of stored runs, from the command line and from Python: cached, shared, and clear when wrong."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from lmsweep.cli import config_folder
from lmsweep.errors import ConfigError
from lmsweep.evaluation.attack import evaluate
from lmsweep.evaluation.command import hydra_arguments
from tests import warm
from tests.evaluation.conftest import FEW, named, request


def command(module: str, *arguments: str, outputs: Path) -> subprocess.CompletedProcess[str]:
    return warm.call(module, *arguments, LMSWEEP_OUTPUTS=str(outputs))


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


BAD = {
    "runs=[]": "no run to evaluate",
    "attack.epsilons=[-1]": "attack.epsilons=-1 is not allowed: it must be a list of numbers >= 0",
    "attack.steps=3": "at least epsilon / alpha",
    "attack.snrs=[33] attack.kind=pgd": "attack.snrs is not allowed with attack.kind=pgd",
    "attack.kind=pgd": "attack.steps=null is not allowed with attack.kind=pgd",
    "attack.alpha=null": "attack.alpha=null is not allowed with attack.kind=ifgsm",
    "source=all attack=gaussian": "source=all is not allowed with attack.kind=gaussian",
    "source=xent split=val": "split=val is not allowed with examples of run ",
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
    assert hydra_arguments(["1e5", "attack=pgd", "a'b"]) == ["attack=pgd", "runs=['1e5','a\\'b']"]
    assert hydra_arguments(["seed=3"]) == ["seed=3"]


@pytest.mark.parametrize(
    "option", ["--cfg", "-c", "-p", "--package", "--config-name", "--config-dir", "--info"]
)
def test_the_value_of_an_option_is_no_run_and_options_come_last(option):
    assert hydra_arguments(["job", option, "job", "--resolve", "seed=3"]) == [
        "seed=3",
        "runs=['job']",
        option,
        "job",
        "--resolve",
    ]


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ("source=546", "source='546'"),
        ("source=1e5", "source='1e5'"),
        ("source=outputs/runs/12", "source='outputs/runs/12'"),
        ("source='546'", "source='546'"),
        ("source=xent,self", "source=xent,self"),
        ("seed=546", "seed=546"),
    ],
)
def test_a_source_is_a_name_even_when_it_looks_like_a_number(given, passed):
    assert hydra_arguments([given]) == [passed]


def test_the_configuration_can_be_shown(runs):
    done = command("lmsweep.attacks", "1e5", "--cfg", "job", "source=546", "attack=pgd", outputs=runs[0])
    assert done.returncode == 0, done.stderr
    shown = yaml.safe_load(done.stdout)
    assert (shown["runs"], shown["source"], shown["attack"]["kind"]) == (["1e5"], "546", "pgd")


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
