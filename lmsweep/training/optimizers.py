"""What torch lacks: RMSProp with the choices of TensorFlow's, and a warm-up before any schedule."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LinearLR, LRScheduler, SequentialLR


def warmed_up(schedule: LRScheduler, steps: int) -> LRScheduler:
    """Let the learning rate climb to the schedule's first value in a straight line of so many steps."""
    if steps == 0:
        return schedule
    # The schedule has set its first rate; a line must start from the optimiser's own.
    optimizer = schedule.optimizer
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"]
    climb = LinearLR(optimizer, start_factor=1 / (steps + 1), total_iters=steps)
    return SequentialLR(optimizer, [climb, schedule], [steps])


class RMSprop(Optimizer):
    """RMSProp (Tieleman & Hinton, 2012).

    TensorFlow's optimiser keeps epsilon inside the root and starts its accumulator of squared gradients at 1,
    which makes the first steps small; torch's adds epsilon outside and starts at 0, which makes them large.
    `eps_inside_sqrt=False, initial_accumulator=0.0` is `torch.optim.RMSprop`.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        *,
        alpha: float = 0.9,
        eps: float = 1e-10,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        eps_inside_sqrt: bool = True,
        initial_accumulator: float = 1.0,
    ) -> None:
        defaults = {"lr": lr, "alpha": alpha, "eps": eps, "momentum": momentum, "weight_decay": weight_decay}
        defaults |= {"eps_inside_sqrt": eps_inside_sqrt, "initial_accumulator": initial_accumulator}
        for name, value in defaults.items():
            if not value >= 0 or (name in ("alpha", "momentum") and value >= 1):
                raise ValueError(f"{name}={value} is out of range for RMSprop")
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._update(group, [p for p in group["params"] if p.grad is not None])
        return loss

    def _update(self, group: dict[str, Any], params: list[Tensor]) -> None:
        if not params:
            return
        for p in params:
            if not self.state[p]:
                self.state[p]["square"] = torch.full_like(p, group["initial_accumulator"])
                if group["momentum"]:
                    self.state[p]["momentum"] = torch.zeros_like(p)
        # One call over all tensors: small networks spend more time in Python than in arithmetic.
        gradients = [p.grad for p in params if p.grad is not None]
        if group["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, params, alpha=group["weight_decay"]))
        squares = [self.state[p]["square"] for p in params]
        torch._foreach_mul_(squares, group["alpha"])
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - group["alpha"])
        if group["eps_inside_sqrt"]:
            roots = torch._foreach_add(squares, group["eps"])
            torch._foreach_sqrt_(roots)
        else:
            roots = torch._foreach_sqrt(squares)
            torch._foreach_add_(roots, group["eps"])
        if group["momentum"]:
            # As in TensorFlow, the learning rate goes into the velocity; torch applies it afterwards,
            # which is the same as long as the learning rate does not change.
            velocity = [self.state[p]["momentum"] for p in params]
            torch._foreach_mul_(velocity, group["momentum"])
            torch._foreach_addcdiv_(velocity, gradients, roots, value=group["lr"])
            torch._foreach_sub_(params, velocity)
        else:
            torch._foreach_addcdiv_(params, gradients, roots, value=-group["lr"])
