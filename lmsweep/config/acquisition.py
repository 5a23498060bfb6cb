"""The schema of `acquisition`: active learning, and what it does not go with."""

from typing import Annotated, Literal

from pydantic import Field

from lmsweep.config.fields import Count, Node
from lmsweep.errors import ConfigError


class AcquisitionConfig(Node):
    """`acquisition`: the options of `lmsweep.training.active.acquisition`, active learning."""

    score: Annotated[
        Literal["none", "random", "max_entropy", "bald"],
        Field(description="none, random, max_entropy or bald"),
    ]
    start_per_class: Count
    added: Count
    rounds: Count
    passes: Count
    pool: Annotated[int | None, Field(ge=1, description="a whole number >= 1, or null")]

    @property
    def active(self) -> bool:
        """Whether the run chooses its training images."""
        return self.score != "none"

    def images(self, classes: int) -> int:
        """How many images the last round trains on."""
        return classes * self.start_per_class + self.rounds * self.added

    def check(self, fraction: float, processes: int) -> None:
        """Raise ConfigError for a run whose other keys do not go with an acquisition."""
        if not self.active:
            return
        key = f"acquisition.score={self.score} is not allowed with"
        if fraction != 1:
            raise ConfigError(
                f"{key} data.fraction={fraction:g}: an acquisition chooses from all training images; use "
                "data.fraction=1, or acquisition.score=none."
            )
        if processes > 1:
            raise ConfigError(f"{key} {processes} processes: use trainer.devices=1 and trainer.num_nodes=1.")
        if self.score != "random" and self.pool is not None and self.pool < self.added:
            raise ConfigError(
                f"acquisition.pool={self.pool} is not allowed: it must be at least "
                f"acquisition.added={self.added}, or null for all images."
            )


# Runs that were stored before there was such a key trained once, on the images they were given.
NO_ACQUISITION = AcquisitionConfig(score="none", start_per_class=2, added=10, rounds=1, passes=1, pool=None)
