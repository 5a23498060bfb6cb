"""The keys of conf/hydra/launcher/slurm.yaml, and what submitit makes of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from lmsweep.config.explain import invalid_value
from lmsweep.config.fields import Count, Flag, Name, Node, Positive, Whole
from lmsweep.errors import ConfigError

OptionalName = Annotated[Name | None, Field(description="a name, or null")]


class SlurmOptions(Node):
    """`hydra.launcher` of `hydra/launcher=slurm`; the file says what each key means."""

    partition: OptionalName
    account: OptionalName
    qos: OptionalName
    time: Annotated[int, Field(ge=1, description="a whole number of minutes >= 1")]
    memory: Annotated[Positive | None, Field(description="a number of GB > 0, or null")]
    gpus_per_node: Whole
    cpus_per_task: Count
    nodes: Count
    tasks_per_node: Count
    runs_per_job: Count
    runs_per_gpu: Count
    array_parallelism: Count
    setup: Annotated[list[str], Field(description="a list of shell commands")]
    sbatch: Annotated[
        dict[str, str | int | float | bool], Field(description="a group of arguments of sbatch")
    ]
    srun: Annotated[list[str], Field(description="a list of arguments of srun")]
    signal_seconds: Count
    requeues: Whole
    wait: Flag
    poll_seconds: Positive

    @classmethod
    def parse(cls, keys: Mapping[str, Any]) -> "SlurmOptions":
        """Check the keys that Hydra composed."""
        try:
            return cls.model_validate(dict(keys))
        except ValidationError as error:
            where = "on the command line or in conf/hydra/launcher/slurm.yaml"
            raise ConfigError(f"hydra.launcher.{invalid_value(cls, error.errors()[0], where)}") from None

    def parameters(self) -> dict[str, Any]:
        """What submitit's executor is given; without a value, the cluster decides."""
        wanted = {
            "job_name": "lmsweep",
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "time": self.time,
            "mem": f"{round(self.memory * 1024)}M" if self.memory else None,
            "gpus_per_node": self.gpus_per_node or None,
            "nodes": self.nodes,
            "ntasks_per_node": self.tasks_per_node,
            "cpus_per_task": self.cpus_per_task,
            "array_parallelism": self.array_parallelism,
            "setup": self.setup,
            "signal_delay_s": self.signal_seconds,
            # Slurm puts a job back into the queue after a preemption or the failure of its node.
            "additional_parameters": {"requeue": True, **self.sbatch},
            # Since Slurm 22.05 srun does not take this from sbatch, and binds the task to one core.
            "srun_args": [f"--cpus-per-task={self.cpus_per_task}", *self.srun],
        }
        return {key: value for key, value in wanted.items() if value is not None}


def job_folder(outputs: Path) -> Path:
    """Where scripts, pickled tasks and printed lines of the jobs of a store are kept."""
    return outputs / "slurm"
