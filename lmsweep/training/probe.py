"""How long a run will take, from a few of its steps."""

import math
import tempfile
import time
from pathlib import Path

from lmsweep.config import NO_TELEMETRY, RunConfig, TelemetryConfig
from lmsweep.training.evaluate import evaluate
from lmsweep.training.run import prepare_run, run

# Steps are added to the probe as long as it stays about this short.
BUDGET_SECONDS = 3.0
MOST_STEPS = 20


def probe_seconds(config: RunConfig) -> float:
    """Estimate the seconds of a whole run; trains a few steps in a temporary folder and forgets them."""
    _short_run(config, 1)  # the first steps of a process are slow
    one = _short_run(config, 1)
    more = max(1, min(MOST_STEPS, int(BUDGET_SECONDS / one)))
    step = max(0.0, (_short_run(config, 1 + more) - one) / more)
    job = prepare_run(config)
    started = time.monotonic()
    evaluate(job.module, job.data.val)
    validation = time.monotonic() - started
    validations = config.trainer.max_steps // config.trainer.val_every
    total = one + step * (config.trainer.max_steps - 1) + validation * max(0, validations - 1)
    if config.telemetry.every == 0:
        return total
    measurement = max(0.0, _short_run(config, 1, config.telemetry) - one) / 2  # before the step and after it
    return total + measurement * (1 + math.ceil(config.trainer.max_steps / config.telemetry.every))


def _short_run(config: RunConfig, steps: int, telemetry: TelemetryConfig = NO_TELEMETRY) -> float:
    trainer = config.trainer.model_copy(update={"max_steps": steps, "val_every": steps})
    tracking = config.tracking.model_copy(update={"name": "none"})
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        short = config.model_copy(
            update={"trainer": trainer, "tracking": tracking, "telemetry": telemetry, "outputs": folder}
        )
        run(prepare_run(short), "probe", Path(folder))
    return time.monotonic() - started
