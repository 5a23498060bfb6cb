"""`lmsweep distances RUN [RUN ...]`: linearised distances against those that attacks find."""

from lmsweep.commands.stored_runs import command
from lmsweep.config.evaluation import DistancesConfig
from lmsweep.evaluation.distances import PICTURE, distances
from lmsweep.evaluation.runs import find_run


def main() -> None:
    """Entry point."""
    command("distances", DistancesConfig, _work)


def _work(config: DistancesConfig) -> None:
    for name in config.runs:
        folder, results = distances(config, find_run(config.outputs, name))
        for values in results["distances"]:
            rank = values["rank_correlation"]
            print(
                f"{folder.path / PICTURE}  {results['method']} {values['norm']}: rank correlation "
                f"{'unknown' if rank is None else f'{rank:.3f}'}, n = {values['samples']}, "
                f"not found {values['not_found']}",
                flush=True,
            )
