"""Networks whose hidden layers follow one another without branches."""

from torch import Tensor, nn

from lmsweep.models.standardise import Standardise


class Chain(nn.Module):
    """Standardise, run the hidden layers in the order of `layer_names`, and let `out` give the logits."""

    standardise: Standardise
    layer_names: tuple[str, ...]
    out: nn.Linear

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch."""
        x = self.standardise(x)
        for name in self.layer_names:
            x = self.get_submodule(name)(x)
        logits: Tensor = self.out(x.flatten(1))
        return logits
