"""Evaluations of stored runs, from the command line and from Python: cached, shared, and clear when wrong."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from lmsweep.commands.evaluations import hydra_arguments
from lmsweep.config.hydra import config_folder
from lmsweep.errors import ConfigError
from tests import warm
from tests.evaluation.conftest import FEW, evaluate, named, request


def command(
    word: str, *arguments: str, outputs: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return warm.call("lmsweep", word, *arguments, LMSWEEP_OUTPUTS=str(outputs), **environment)


def test_a_white_box_evaluation_leaves_its_files_and_is_cached(runs):
    outputs, ids = runs
    config = request(outputs, named(ids, "xent0"), *FEW)
    ((job, folder, results),) = evaluate(config)
    assert folder.path == outputs / "evaluations" / job.id
    assert sorted(p.name for p in folder.path.iterdir()) == ["config.yaml", "results.json", "status.json"]
    written = yaml.safe_load(folder.config.read_text())
    assert (written["targets"], written["source"]) == ([ids["xent0"]], None)
    assert written["attack"]["epsilons"] == [0, 0.1, 0.2]
    assert written["attack"]["clip_pixels"] is True
    assert "snrs" not in written["attack"]
    assert (results["methods"], results["unit"]) == ({ids["xent0"]: "xent"}, "epsilon")
    curve = results["curves"][ids["xent0"]]
    assert curve["samples"] == 120
    assert curve["accuracy"][0] == curve["clean_accuracy"]
    assert curve["accuracy"][2] < curve["accuracy"][0]
    stamp = folder.results.stat().st_mtime_ns
    ((again, _, same),) = evaluate(config)
    assert (again.id, same) == (job.id, results)
    assert folder.results.stat().st_mtime_ns == stamp


@pytest.mark.slow
def test_every_file_in_conf_attack_can_be_run(runs):
    outputs, ids = runs
    few = {"pgd": ("attack.restarts=1",), "search": ("attack.queries=5",)}
    for file in sorted(Path(config_folder(), "attack").glob("*.yaml")):
        keys = (f"attack={file.stem}", "samples=20", *few.get(file.stem, ()))
        ((_, _, results),) = evaluate(request(outputs, named(ids, "xent0"), *keys))
        (curve,) = results["curves"].values()
        assert len(curve["accuracy"]) == len(curve["strengths"]) > 0


def test_the_matrix_has_every_pair_and_its_diagonal_is_white_box(runs):
    outputs, ids = runs
    last = (*FEW, "attack.early_stop=false")
    found = evaluate(request(outputs, named(ids, "xent0", "xent1", "margin0"), "source=all", *last))
    matrix = {
        (one.source, target): curve["accuracy"]
        for one, _, results in found
        for target, curve in results["curves"].items()
    }
    assert len(matrix) == 9
    for name in ("xent0", "xent1", "margin0"):
        ((_, _, results),) = evaluate(request(outputs, named(ids, name), *last))
        assert matrix[ids[name], ids[name]] == results["curves"][ids[name]]["accuracy"]
    ((one, _, results),) = evaluate(request(outputs, named(ids, "margin0"), "source=xent", *FEW))
    assert matrix[ids["xent1"], ids["margin0"]] == results["curves"][ids["margin0"]]["accuracy"]
    assert (one.source, results["methods"][ids["xent1"]]) == (ids["xent1"], "xent")


BAD = {
    "runs=[]": "no run to evaluate",
    "attack.epsilons=[-1]": "attack.epsilons=-1 is not allowed: it must be a list of numbers >= 0",
    "attack.steps=3": "attack.steps=3 is not allowed: IFGSM takes at least epsilon / alpha steps",
    "+attack.snrs=[33] attack=pgd": "There is no key attack.snrs; attack has epsilons, target",
    "attack=pgd attack.steps=null": "attack.steps=null is not allowed: it must be a whole number >= 1",
    "attack.alpha=null": "attack.alpha=null is not allowed: it must be a number > 0",
    "attack.kind=balls": "attack.kind=balls is not allowed (no attack is defined there): it must be apgd",
    "attack.kind=no.such": "attack.kind=no.such is not allowed (No module named 'no'): it must be apgd",
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
    done = command("attack", "1e5", "--cfg", "job", "source=546", "attack=pgd", outputs=runs[0])
    assert done.returncode == 0, done.stderr
    shown = yaml.safe_load(done.stdout)
    assert (shown["runs"], shown["source"], shown["attack"]["kind"]) == (["1e5"], "546", "pgd")


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (("nope",), 1, "There is no run nope in "),
        ((), 2, "There is no run to evaluate"),
        (("nope", "quereis=3"), 2, "There is no key quereis; the configuration has epsilons, alpha"),
        (
            ("nope", "thresholds.gap=2"),
            2,
            "thresholds.gap=2 is not allowed: it must be a number in",
        ),
    ],
)
def test_commands_stop_with_one_sentence(runs, arguments, status, sentence):
    done = command("audit", *arguments, outputs=runs[0])
    assert done.returncode == status
    assert done.stdout == ""
    assert done.stderr.startswith(sentence)
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_attack_command_prints_a_line_per_evaluation_from_the_store(runs):
    outputs, ids = runs
    keys = ("attack=fgsm", "attack.epsilons=[0,0.1,0.2]", "samples=120")
    evaluate(request(outputs, named(ids, "xent0", "margin0"), *keys))
    kept = sorted(p.name for p in (outputs / "evaluations").iterdir())
    done = command("attack", ids["xent0"][:9], ids["margin0"], *keys, outputs=outputs)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 2
    assert "margin_linf_all" in lines[1]
    assert "fgsm from itself, accuracy by epsilon  0: " in lines[1]
    assert sorted(p.name for p in (outputs / "evaluations").iterdir()) == kept


def test_the_distances_command_draws_and_correlates(runs):
    outputs, ids = runs
    done = command(
        "distances",
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
