"""`lmsweep attack RUN [RUN ...] key=value ...` attacks stored runs; the results are kept."""

from lmsweep.commands.jobs import measurement_job
from lmsweep.commands.stored_runs import command, measured
from lmsweep.config.evaluation import EvaluationConfig
from lmsweep.evaluation.jobs import attack_measurements


def main() -> None:
    """Entry point."""
    command("evaluation", EvaluationConfig, _work)


def _work(config: EvaluationConfig) -> None:
    wanted, runs = attack_measurements(config)
    for folder, results in measured([measurement_job(one, runs) for one in wanted]):
        by = "itself" if results["source"] is None else f"run {results['source']}"
        for name, found in results["curves"].items():
            points = zip(found["strengths"], found["accuracy"], strict=True)
            curve = "  ".join(f"{strength:g}: {accuracy:.2%}" for strength, accuracy in points)
            print(
                f"{folder.path}  {results['methods'][name]} (run {name}), {config.attack.kind} from {by}, "
                f"accuracy by {results['unit']}  {curve}",
                flush=True,
            )
