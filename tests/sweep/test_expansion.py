"""Every file of sweeps/ at every scale: it composes, asks for what its figure shows, and shares runs."""

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from lmsweep.cli import config_folder
from lmsweep.dotted import dotted
from lmsweep.errors import ConfigError
from lmsweep.figures.collect import axes_of, settings
from lmsweep.figures.make import spec_of
from lmsweep.sweep.compose import Composer
from lmsweep.sweep.expansion import read_sweep, scale_names, sweep_folder, sweep_names
from tests.sweep.test_compose import by_hydra

FIFTEEN = (
    *("fig1_toy", "fig2_mnist_data", "fig2_mnist_noise", "fig3_mnist_advtrain", "fig3_mnist_ifgsm"),
    *("fig4_cifar_data", "fig4_cifar_noise", "fig5_cifar_ifgsm", "fig6_imagenet_attacks"),
    *("fig7_mnist_noise_all", "fig8_mnist_data_all", "fig9_mnist_fgsm", "fig10_mnist_gaussian"),
    *("fig11_cifar_fgsm", "fig12_cifar_distance"),
)
OURS = ("figX_exact", "figX_gamma")


def test_all_fifteen_figures_and_ours_are_there_at_three_scales():
    assert sweep_names() == (*FIFTEEN, *OURS)
    assert scale_names() == ("laptop", "paper", "smoke")


# The paper's grids have thousands of runs; one small figure per family says as much.
SMALL = ("fig1_toy", "fig5_cifar_ifgsm", "fig6_imagenet_attacks", "fig10_mnist_gaussian")


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        *((name, "smoke") for name in (*FIFTEEN, *OURS)),
        *(pytest.param(name, "laptop", marks=pytest.mark.slow) for name in (*FIFTEEN, *OURS)),
        *(pytest.param(name, "paper", marks=pytest.mark.slow) for name in SMALL),
    ],
)
def test_the_grid_has_every_method_and_axis_that_the_figure_shows(name, scale):
    sweep = read_sweep(name, scale)
    assert f" {scale}: {len(sweep.plan.runs)} runs" in (sweep_folder() / f"{name}.yaml").read_text()
    spec = spec_of(sweep)
    methods = {config.method_name() for config in sweep.plan.runs.values()}
    assert methods == set(spec.methods)
    seeds = {config.seed for config in sweep.plan.runs.values()}
    assert len(seeds) >= 2  # an interval, and another seed to attack from
    hyperparameters = settings(sweep.plan.runs, axes_of(spec))
    places = {
        (
            hyperparameters[n],
            c.method_name(),
            c.seed,
            *(dotted(c.identity_dict()).get(axis) for axis in axes_of(spec)),
        )
        for n, c in sweep.plan.runs.items()
    }
    assert len(places) == len(sweep.plan.runs), "two runs of a figure differ in nothing that it knows"
    for axis in axes_of(spec):
        values = {dotted(config.identity_dict()).get(axis) for config in sweep.plan.runs.values()}
        assert len(values) >= 4 or spec.kind == "regions"


def test_figures_share_runs():
    small, large = (
        set(read_sweep(n, "smoke").plan.runs) for n in ("fig2_mnist_noise", "fig7_mnist_noise_all")
    )
    assert small < large
    attacked = set(read_sweep("fig3_mnist_ifgsm", "smoke").plan.runs)
    assert attacked < large


@pytest.mark.parametrize("name", ["fig2_mnist_noise", "fig6_imagenet_attacks", "fig9_mnist_fgsm"])
def test_jobs_are_composed_as_hydra_composes_them(name):
    with initialize_config_dir(config_folder(), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        arguments = [f"sweep={name}", "scale=smoke"]
        master = loader.load_configuration("config", arguments, RunMode.MULTIRUN)
        composer = Composer(loader, master)
        for job in (["method=xent", "seed=1"], ["method=margin_l1_all", "margin.gamma=3", "model=mlp"]):
            assert composer.compose([*job, *arguments]) == by_hydra(loader, master, [*job, *arguments])


def test_overrides_change_the_runs():
    plain, short = (
        read_sweep("fig10_mnist_gaussian", "smoke"),
        read_sweep("fig10_mnist_gaussian", "smoke", ["trainer.max_steps=3", "seed=7"]),
    )
    assert {config.trainer.max_steps for config in short.plan.runs.values()} == {3}
    assert {config.seed for config in short.plan.runs.values()} == {7}
    assert not set(plain.plan.runs) & set(short.plan.runs)


def test_the_head_of_every_sweep_says_how_to_run_it_and_how_long_it_takes():
    for name in sweep_names():
        head = (sweep_folder() / f"{name}.yaml").read_text().split("defaults:")[0]
        assert f"make reproduce-figure FIG={name} SCALE=smoke" in head
        assert "Run time: smoke" in head
        times = head.split("Run time:")[1]
        assert [scale for scale in ("smoke:", "laptop:", "paper:") if scale in times] == [
            "smoke:",
            "laptop:",
            "paper:",
        ]
        assert "?" not in "".join(times.splitlines()[:2]), name


@pytest.mark.parametrize(
    ("name", "scale", "part"), [("fig99", "smoke", "figure=fig99"), ("fig1_toy", "huge", "scale=huge")]
)
def test_unknown_names_are_told(name, scale, part):
    with pytest.raises(ConfigError, match=f"{part} is not allowed: it must be one of"):
        read_sweep(name, scale)
