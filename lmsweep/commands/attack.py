"""`lmsweep attack RUN [RUN ...] key=value ...` attacks stored runs; the results are kept."""

from lmsweep.commands.stored_runs import command
from lmsweep.config.evaluation import EvaluationConfig
from lmsweep.evaluation.attack import evaluate


def main() -> None:
    """Entry point."""
    command("evaluation", EvaluationConfig, _work)


def _work(config: EvaluationConfig) -> None:
    for job, folder, results in evaluate(config):
        by = "itself" if job.source is None or job.source.id == job.target.id else f"run {job.source.id}"
        curve = "  ".join(
            f"{strength:g}: {accuracy:.2%}"
            for strength, accuracy in zip(results["strengths"], results["accuracy"], strict=True)
        )
        print(
            f"{folder.path}  {results['method']} (run {job.target.id}), {config.attack.kind} from {by}, "
            f"accuracy by {results['unit']}  {curve}",
            flush=True,
        )
