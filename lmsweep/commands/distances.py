"""`lmsweep distances RUN [RUN ...]`: linearised distances against those that attacks find."""

from lmsweep.commands.jobs import measurement_job
from lmsweep.commands.stored_runs import command, measured
from lmsweep.config.evaluation import DistancesConfig
from lmsweep.config.measurement import Measurement
from lmsweep.evaluation.distances import PICTURE
from lmsweep.evaluation.runs import find_run


def main() -> None:
    """Entry point."""
    command("distances", DistancesConfig, _work)


def _work(config: DistancesConfig) -> None:
    runs = [find_run(config.outputs, name, config.trust) for name in config.runs]
    jobs = [measurement_job(Measurement("distances", config, (run.id,)), {run.id: run}) for run in runs]
    for folder, results in measured(jobs):
        (method,) = results["methods"].values()
        for values in results["distances"]:
            rank = values["rank_correlation"]
            print(
                f"{folder.path / PICTURE}  {method} {values['norm']}: rank correlation "
                f"{'unknown' if rank is None else f'{rank:.3f}'}, n = {values['samples']}, "
                f"not found {values['not_found']}",
                flush=True,
            )
