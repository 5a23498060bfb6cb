"""Active learning as a run: which images it labels, what it refuses, and that a killed one goes on."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
from torch import nn

from lmsweep.config.run import parse
from lmsweep.data import Dataset, Split
from lmsweep.errors import ConfigError
from lmsweep.training.acquisition import Acquisition, dropout_probabilities, first_images
from lmsweep.training.checkpoint import load_checkpoint
from lmsweep.training.run import prepare_run, probe_seconds, run
from tests.config.test_run import config, identity
from tests.data.pictures import write_folder

SHORT = (
    *("method=bald", "model.width=4", "optimizer=rmsprop", "data.label_noise=0.1"),
    *("trainer.max_steps=20", "trainer.val_every=10", "trainer.batch_size=16"),
    *("acquisition.rounds=2", "acquisition.passes=4", "acquisition.pool=100"),
)
SCORES = ("bald", "random", "max_entropy")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The results of a run by its score."""
    return {
        score: run(
            prepare_run(config(*SHORT, f"acquisition.score={score}")), "id", tmp_path_factory.mktemp(score)
        )
        for score in SCORES
    }


@pytest.mark.parametrize("score", SCORES)
def test_no_image_is_labelled_twice(results, score):
    added = [point["added"] for point in results[score]["curve"]]
    assert [len(images) for images in added] == [20, 10, 10]
    every = [image for images in added for image in images]
    assert len(set(every)) == 40
    assert min(every) >= 0
    assert max(every) < 1000


@pytest.mark.parametrize("score", SCORES)
def test_the_curve_says_where_each_of_its_points_is(results, score):
    found = results[score]
    curve = found["curve"]
    assert [point["images"] for point in curve] == [20, 30, 40]
    assert [point["at"]["data.fraction"] for point in curve] == [0.02, 0.03, 0.04]
    assert curve[-1]["metrics"] == found["metrics"]
    assert curve[-1]["selections"] == found["selections"]
    assert found["data"]["train_size"] == 40
    for point in curve:
        assert {"val_accuracy", "test_accuracy"} <= point["selections"]["last"].keys()


def test_the_first_images_are_balanced_and_the_same_for_every_score(results):
    labels = prepare_run(config(*SHORT)).data.train.y
    starts = [results[score]["curve"][0] for score in SCORES]
    assert labels[starts[0]["added"]].bincount().tolist() == [2] * 10
    assert starts[0] == starts[1] == starts[2]
    later = [results[score]["curve"][1]["added"] for score in SCORES]
    assert len({tuple(images) for images in later}) == 3


def test_first_images_are_the_first_of_each_class():
    assert first_images(torch.tensor([1, 1, 0, 1, 2, 0, 0, 2]), 2).tolist() == [0, 1, 2, 4, 5, 7]


def test_metrics_have_a_line_per_round(tmp_path):
    run(prepare_run(config(*SHORT)), "id", tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    rounds = [(line["step"], line["acquisition/images"]) for line in lines if "acquisition/images" in line]
    assert rounds == [(20, 20), (40, 30), (60, 40)]
    assert [line["step"] for line in lines if "val_loss" in line] == [10, 20, 30, 40, 50, 60]


class Dropping(nn.Module):
    """Logits whose passes differ wherever an image has a pixel that is not black."""

    def __init__(self):
        super().__init__()
        self.dropout, self.norm, self.out = nn.Dropout(0.5), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.dropout(self.norm(x.flatten(1))))


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Dropping().eval()


@pytest.fixture
def data():
    """300 black images of two by three pixels, of which every thirtieth is white."""
    x, y = torch.zeros(300, 1, 2, 3), torch.arange(300) % 3
    x[::30] = 1
    return Dataset(Split(x, y), Split(x[:3], y[:3]), Split(x[:3], y[:3]), 3)


def test_the_images_with_the_highest_scores_are_added(network, data):
    white = list(range(30, 300, 30))  # image 0 is in the start
    for score in ("bald", "max_entropy"):
        options = config("method=bald", f"acquisition.score={score}", "acquisition.added=9").acquisition
        with torch.no_grad():  # the answer for black images is one of the classes, without any doubt
            network.out.bias.copy_(torch.tensor([20.0, 0.0, 0.0]))
            network.out.weight.copy_(20 * torch.randn(3, 6, generator=torch.Generator().manual_seed(1)))
        state = Acquisition.of(data, options, None)
        state.extend(data, options, network, seed=0)
        assert sorted(state.labelled[6:].tolist()) == white


def test_scores_see_dropout_only_and_leave_no_trace(network, data):
    modes = [module.training for module in network.modules()]
    state, before = torch.get_rng_state(), {k: v.clone() for k, v in network.state_dict().items()}
    found = dropout_probabilities(network, data.train, passes=5, seed=3)
    assert found.shape == (5, 300, 3)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found.sum(-1), torch.ones(5, 300, dtype=torch.float64))
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in network.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(found, dropout_probabilities(network, data.train, passes=5, seed=3))
    assert not torch.equal(found, dropout_probabilities(network, data.train, passes=5, seed=4))
    assert (found[0] - found[1]).abs().max() > 1e-3
    network.dropout.p = 0.0
    sure = dropout_probabilities(network, data.train, passes=2, seed=3)
    torch.testing.assert_close(sure[0], network(data.train.x).double().softmax(1))
    assert torch.equal(sure[0], sure[1])


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["model.dropout=0"], r"score=bald .* drops nothing.* set model\.dropout"),
        (["model.dropout=0", "acquisition.score=max_entropy"], r"score=max_entropy .* drops nothing"),
        (["data.fraction=0.5"], r"not allowed with data\.fraction=0\.5"),
        (["trainer.devices=2"], r"not allowed with 2 processes"),
        (["acquisition.pool=5"], r"pool=5 is not allowed: it must be at least acquisition\.added=10"),
        (["acquisition.rounds=99"], r"they would be 1010 .* has 1000 for training"),
        (["acquisition.start_per_class=200"], r"it must be at most \d+, the images of the rarest class"),
    ],
)
def test_what_does_not_go_with_an_acquisition_is_refused_in_a_sentence(overrides, sentence):
    with pytest.raises(ConfigError, match=sentence):
        prepare_run(config("method=bald", *overrides))
    assert prepare_run(config("method=bald", "model.dropout=0", "acquisition.score=random"))


def test_images_that_stay_on_disk_are_refused(tmp_path):
    write_folder(tmp_path / "pictures")
    source = ("folder=pictures", "size=16", "validation_size=5")
    words = [
        "data=imagenet",
        "model=mlp",
        f"data.root={tmp_path}",
        *(f"data.source.{word}" for word in source),
    ]
    with pytest.raises(ConfigError, match="data=imagenet, whose images stay on disk"):
        prepare_run(config("method=bald", *words))


def test_a_run_that_acquires_nothing_is_the_run_it_always_was():
    stored = config("method=xent").to_dict()
    del stored["acquisition"]
    assert parse(stored).id == identity("method=xent") == identity("method=xent", "acquisition.rounds=3")
    assert "acquisition" not in config().identity_dict()


def test_identity_counts_what_a_score_uses():
    assert identity("method=bald") != identity("method=bald", "acquisition.passes=3")
    random = ("method=bald", "acquisition.score=random")
    assert identity(*random) == identity(*random, "acquisition.passes=3", "acquisition.pool=50")
    assert identity(*random) != identity(*random, "acquisition.rounds=3")
    assert config("method=margin", "acquisition.score=bald").method_name() == "margin_l2_all+bald"


def test_the_estimate_counts_every_round_and_every_pass(tmp_path, clock_of_samples):
    one = config(*SHORT, f"outputs={tmp_path}")
    guess, before = probe_seconds(one), clock_of_samples.monotonic()
    run(prepare_run(one), "id", tmp_path)
    assert guess == pytest.approx(clock_of_samples.monotonic() - before, rel=0.15)


@pytest.fixture(scope="module")
def undisturbed(made_once, lmsweep_command):
    def make(outputs):
        done = lmsweep_command(*SHORT, outputs=outputs)
        assert done.returncode == 0, done.stderr
        assert "on 20 images" in done.stderr
        (results,) = (outputs / "runs").glob("*/results.json")
        return results.parent

    return made_once("undisturbed_acquisition", make)


# In the middle of a round, and when its training has ended and its images are scored.
@pytest.mark.slow
@pytest.mark.parametrize("moment", ["step 10/20", "step 20/20"])
def test_a_killed_acquisition_goes_on_to_the_same_result_bit_for_bit(
    undisturbed, lmsweep_command, tmp_path, moment
):
    process = subprocess.Popen(
        [sys.executable, "-m", "lmsweep", *SHORT],
        env={**os.environ, "LMSWEEP_OUTPUTS": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if "on 30 images" in line and moment in line:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    (half,) = (tmp_path / "runs").glob("*/checkpoint.ckpt")
    killed = half.parent
    assert not (killed / "results.json").exists()
    done = lmsweep_command(*SHORT, outputs=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "on 20 images" not in done.stderr  # what is done is not done again
    assert killed.name == undisturbed.name
    assert (killed / "metrics.jsonl").read_bytes() == (undisturbed / "metrics.jsonl").read_bytes()
    ours, theirs = (json.loads((folder / "results.json").read_text()) for folder in (killed, undisturbed))
    for key in ("metrics", "selections", "curve", "data"):
        assert ours[key] == theirs[key]
    for file in ("checkpoint.ckpt", "last.ckpt"):
        weights = [load_checkpoint(folder / file)["state_dict"] for folder in (killed, undisturbed)]
        assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
