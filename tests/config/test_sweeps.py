"""Every file of sweeps/ at every scale: it composes, asks for what its figure shows, and shares runs."""

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError

from lmsweep.config import sweeps
from lmsweep.config.fields import hydra_error
from lmsweep.config.hydra import Composer, config_folder
from lmsweep.config.identity import dotted
from lmsweep.config.run import RunConfig, split
from lmsweep.config.sweeps import read_sweep, scales, sweep_folder, sweep_names, with_full_scale
from lmsweep.errors import ConfigError
from lmsweep.figures.collect import axes_of, names, settings
from lmsweep.figures.make import spec_of
from tests.config.test_hydra import by_hydra

FIFTEEN = (
    *("fig1_toy", "fig2_mnist_data", "fig2_mnist_noise", "fig3_mnist_advtrain", "fig3_mnist_ifgsm"),
    *("fig4_cifar_data", "fig4_cifar_noise", "fig5_cifar_ifgsm", "fig6_imagenet_attacks"),
    *("fig7_mnist_noise_all", "fig8_mnist_data_all", "fig9_mnist_fgsm", "fig10_mnist_gaussian"),
    *("fig11_cifar_fgsm", "fig12_cifar_distance"),
)
OURS = ("figX_ablations", "figX_exact", "figX_gamma", "figX_methods", "figX_selection")


def single_run(*words):
    """What `lmsweep` without -m runs."""
    with initialize_config_dir(config_folder(), version_base="1.3"):
        return split(OmegaConf.to_container(compose("config", with_full_scale(words)), resolve=True))[0]


def test_all_fifteen_figures_and_ours_are_there_at_four_scales():
    assert sweep_names() == (*FIFTEEN, *OURS)
    assert {scale.partition("/")[2] for scale in scales()} == {"laptop", "paper", "smoke", "workstation"}


# The paper's grids have thousands of runs; one small figure per family says as much.
SMALL = ("fig1_toy", "fig5_cifar_ifgsm", "fig6_imagenet_attacks", "fig10_mnist_gaussian")


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        *((name, "smoke") for name in FIFTEEN),
        *(pytest.param(name, "smoke", marks=pytest.mark.slow) for name in OURS),
        *(pytest.param(name, "laptop", marks=pytest.mark.slow) for name in (*FIFTEEN, *OURS)),
        *(pytest.param(name, "paper", marks=pytest.mark.slow) for name in SMALL),
    ],
)
def test_the_grid_has_every_method_and_axis_that_the_figure_shows(name, scale):
    sweep = read_sweep(name, scale)
    assert f" {scale}: {len(sweep.runs)} runs" in (sweep_folder() / f"{name}.yaml").read_text()
    assert single_run(f"sweep={name}", f"scale={scale}").id in sweep.runs
    assert len(sweep.lines) == len(sweep.runs)
    spec = spec_of(sweep)
    methods = {config.method_name() for config in sweep.runs.values()}
    assert methods == {method.partition("@")[0] for method in spec.methods}
    assert all(any(names(run, [method]) for run in sweep.runs.values()) for method in spec.methods)
    seeds = {config.seed for config in sweep.runs.values()}
    assert len(seeds) >= 2  # an interval, and another seed to attack from
    hyperparameters = settings(sweep.runs, axes_of(spec))
    places = {
        (
            hyperparameters[n],
            c.method_name(),
            c.seed,
            *(dotted(c.identity_dict()).get(axis) for axis in axes_of(spec)),
        )
        for n, c in sweep.runs.items()
    }
    assert len(places) == len(sweep.runs), "two runs of a figure differ in nothing that it knows"
    for axis in axes_of(spec):
        values = {dotted(config.identity_dict()).get(axis) for config in sweep.runs.values()}
        assert len(values) >= 4 or spec.kind == "regions" or name in ("figX_ablations", "figX_methods")


def test_figures_share_runs():
    small, large = (set(read_sweep(n, "smoke").runs) for n in ("fig2_mnist_noise", "fig7_mnist_noise_all"))
    assert small < large
    attacked = set(read_sweep("fig3_mnist_ifgsm", "smoke").runs)
    assert attacked < large


@pytest.mark.parametrize("name", ["fig2_mnist_noise", "fig6_imagenet_attacks", "fig9_mnist_fgsm"])
def test_jobs_are_composed_as_hydra_composes_them(name):
    with initialize_config_dir(config_folder(), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        arguments = with_full_scale([f"sweep={name}", "scale=smoke"])
        master = loader.load_configuration("config", arguments, RunMode.MULTIRUN)
        composer = Composer(loader, master)
        for job in (
            ["method=xent", "seed=1"],
            ["method=margin", "margin.norm=1", "margin.gamma=3", "model=mlp"],
        ):
            assert composer.compose([*job, *arguments]) == by_hydra(loader, master, [*job, *arguments])


def test_overrides_change_the_runs():
    plain, short = (
        read_sweep("fig10_mnist_gaussian", "smoke"),
        read_sweep("fig10_mnist_gaussian", "smoke", ["trainer.max_steps=3", "seed=7"]),
    )
    assert {config.trainer.max_steps for config in short.runs.values()} == {3}
    assert {config.seed for config in short.runs.values()} == {7}
    assert not set(plain.runs) & set(short.runs)


def test_the_head_of_every_sweep_says_how_to_run_it_and_how_long_it_takes():
    for name in sweep_names():
        head = (sweep_folder() / f"{name}.yaml").read_text().split("defaults:")[0]
        assert f"make reproduce-figure FIG={name} SCALE=smoke" in head
        assert "Run time: smoke" in head
        times = head.split("Run time:")[1]
        assert [scale for scale in ("smoke:", "laptop:", "workstation:", "paper:") if scale in times] == [
            "smoke:",
            "laptop:",
            "workstation:",
            "paper:",
        ]
        assert "?" not in "".join(times.splitlines()[:2]), name


@pytest.mark.parametrize(
    ("name", "scale", "part"), [("fig99", "smoke", "figure=fig99"), ("fig1_toy", "huge", "scale=huge")]
)
def test_unknown_names_are_told(name, scale, part):
    with pytest.raises(ConfigError, match=f"{part} is not allowed: it must be one of"):
        read_sweep(name, scale)


def test_the_command_line_wins_over_the_scale_and_a_method_over_it_too():
    words = ("sweep=fig2_mnist_noise", "scale=laptop")
    plain, other = (
        single_run(*words),
        single_run(*words, "data=fashion_mnist", "optimizer=sgd", "model.width=0.5", "margin.norm=inf"),
    )
    assert (plain.data.name, plain.model.name, plain.optimizer.name) == ("mnist", "mnist_cnn", "rmsprop")
    assert (plain.margin.norm, plain.margin.gamma) == (2, 2)
    assert (other.data.name, other.optimizer.name, other.margin.gamma) == ("fashion_mnist", "sgd", 0.2)
    assert (other.model.arguments["width"], other.trainer) == (0.5, plain.trainer)
    assert single_run(*words, "margin.gamma=7", "margin.norm=3").margin.gamma == 7
    assert single_run(*words, "method=margin_released").margin.gamma == 10000
    assert single_run("scale=imagenet/paper", "method=xent").method.xent_weight == 1


def test_a_full_scale_needs_no_sweep_and_is_the_same():
    short, full, alone = (
        single_run("sweep=fig3_mnist_ifgsm", "scale=laptop"),
        single_run("sweep=fig3_mnist_ifgsm", "scale=mnist/laptop"),
        single_run("scale=mnist/laptop"),
    )
    assert short == full == alone
    assert {scale.partition("/")[0] for scale in scales()} == {"cifar", "imagenet", "mnist", "toy"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["scale=laptop"],
            r"scale=laptop is not allowed: it must be one of cifar/laptop, cifar/paper, .*toy/workstation\.",
        ),
        (
            ["scale=mnist/huge"],
            r"scale=mnist/huge is not allowed: .*mnist/laptop, mnist/paper, mnist/smoke, mnist/workstation",
        ),
        (
            ["sweep=fig1_toy", "scale=huge"],
            r"scale=huge is not allowed: it must be one of laptop, paper, smoke, workstation\.",
        ),
        (["sweep=nope", "scale=smoke"], r"sweep=nope is not allowed: it must be one of fig1_toy"),
    ],
)
def test_a_scale_that_is_not_there_is_told_with_those_that_are(words, sentence):
    with pytest.raises(ConfigError, match=sentence):
        with_full_scale(words)


def test_a_sweep_without_a_scale_is_told(tmp_path, monkeypatch):
    (tmp_path / "own.yaml").write_text("defaults: [override /method: xent]\n")
    monkeypatch.setattr(sweeps, "sweep_folder", lambda: tmp_path)
    sweep_names.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r"sweep=own has no scale: add `override /scale: NAME` to the"):
            with_full_scale(["sweep=own", "scale=smoke"])
    finally:
        sweep_names.cache_clear()


def test_a_norm_without_a_gamma_is_told():
    with pytest.raises(InterpolationResolutionError) as raised:
        single_run("scale=mnist/laptop", "margin.norm=3")
    assert hydra_error(RunConfig, raised.value) == (
        "margin.norm=3 has no entry in grid.gammas, which has 1, 2, inf; say margin.gamma=VALUE."
    )
