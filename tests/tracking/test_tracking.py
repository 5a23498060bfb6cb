"""Tracking beside a run: real offline W&B files, and a run that comes out the same."""

import json


def test_an_offline_wandb_run_is_written_and_changes_nothing_else(lmsweep_command, tmp_path):
    short = ("trainer.max_steps=20", "trainer.val_every=10", "model.width=4", "method=xent")
    plain = lmsweep_command(*short, outputs=tmp_path / "plain")
    tracked = lmsweep_command(*short, "tracking=wandb", outputs=tmp_path / "tracked", WANDB_API_KEY="")
    assert tracked.returncode == 0, tracked.stderr
    (one,), (two,) = (
        list((tmp_path / name / "runs").glob("*/results.json")) for name in ("plain", "tracked")
    )
    assert one.parent.name == two.parent.name
    assert json.loads(one.read_text())["metrics"] == json.loads(two.read_text())["metrics"]
    (file,) = two.parent.glob("wandb/offline-run-*/*.wandb")
    assert two.parent.name in file.name
    assert file.stat().st_size > 0
    assert len(tracked.stdout.splitlines()) == 1
    assert plain.stdout.split(maxsplit=1)[1] == tracked.stdout.split(maxsplit=1)[1]
