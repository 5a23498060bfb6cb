"""Gradients per sample through train-mode batch normalisation.

In train mode every sample's output depends on every other sample through the batch's mean and variance, so
the class gradients of one sample, which the margin is measured by, contain a little of all other samples.
Inside `per_sample_batch_norm(model)` the forward pass and the backward pass of the loss are unchanged, but
class gradients treat the batch statistics as constants, as if each sample were alone. This costs nothing.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lmsweep.margin.temporary import replaced

# A plain global, not a thread-local: on CUDA autograd runs backward functions in threads of its own.
_measuring = False


def measuring_class_gradients() -> bool:
    """Whether the backward pass under way measures class gradients, rather than gradients of the loss."""
    return _measuring


@contextmanager
def class_gradients() -> Iterator[None]:
    """Mark the backward passes inside as such that measure class gradients."""
    global _measuring
    before, _measuring = _measuring, True
    try:
        yield
    finally:
        _measuring = before


class _PerSampleBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: float,
        eps: float,
    ) -> Tensor:
        out, mean, inverse_std = torch.native_batch_norm(
            x, weight, bias, running_mean, running_var, True, momentum, eps
        )
        ctx.save_for_backward(x, weight, mean, inverse_std)
        ctx.eps = eps
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        x, weight, mean, inverse_std = ctx.saved_tensors
        if _measuring:
            if torch.is_grad_enabled():
                # Exact mode: to class gradients the statistics are constants, but the weights before this
                # layer do change them.
                others = [d for d in range(x.ndim) if d != 1]
                inverse_std = (x.var(others, correction=0) + ctx.eps).rsqrt()
            slope = inverse_std if weight is None else inverse_std * weight
            shape = (1, -1) + (1,) * (gradient.ndim - 2)
            return gradient * slope.view(shape).to(gradient.dtype), None, None, None, None, None, None
        wanted = [ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.needs_input_grad[2]]
        dx, dweight, dbias = torch.ops.aten.native_batch_norm_backward(
            gradient, x, weight, None, None, mean, inverse_std, True, ctx.eps, wanted
        )
        return dx, dweight, dbias, None, None, None, None


def _forward(module: _BatchNorm, x: Tensor) -> Tensor:
    module._check_input_dim(x)
    if x.numel() == x.shape[1]:
        raise ValueError(f"batch norm needs more than one value per channel, and got {tuple(x.shape)}")
    momentum = 0.0 if module.momentum is None else module.momentum
    if module.num_batches_tracked is not None:
        module.num_batches_tracked.add_(1)
        if module.momentum is None:
            momentum = 1.0 / float(module.num_batches_tracked)
    out: Tensor = _PerSampleBatchNorm.apply(
        x, module.weight, module.bias, module.running_mean, module.running_var, momentum, module.eps
    )
    return out


@contextmanager
def per_sample_batch_norm(model: nn.Module) -> Iterator[None]:
    """Let class gradients of what `model` computes inside see each sample alone; see the top of this file."""
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, nn.SyncBatchNorm):
                raise ValueError(f"batch_norm='per_sample' cannot be used with the SyncBatchNorm {name}")
            if isinstance(module, _BatchNorm) and module.training:
                stack.enter_context(replaced(module, "forward", partial(_forward, module)))
        yield
