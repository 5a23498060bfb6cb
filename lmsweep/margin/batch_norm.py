"""Train-mode batch normalisation, where every sample's output depends on all other samples of the batch.

Gradients per sample: through the batch's mean and variance, the class gradients of one sample, which the
margin is measured by, contain a little of all other samples. Inside `per_sample_batch_norm(model)` the
forward pass and the backward pass of the loss are unchanged, but class gradients treat the batch statistics
as constants, as if each sample were alone. This costs nothing.

Several processes: in DDP every process has only its share of the batch. Inside `sync_batch_norm(model)` batch
norm normalises by the whole batch, as one process does. This is by hand because torch's SyncBatchNorm needs
GPUs, cannot be differentiated twice (`margin.exact`) and cannot treat statistics as constants. Modules stay
what they are, so that checkpoints know nothing of processes; only their forward passes are replaced.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lmsweep.margin.temporary import replaced

# A plain global, not a thread-local: on CUDA autograd runs backward functions in threads of its own.
_measuring = False


@contextmanager
def class_gradients() -> Iterator[None]:
    """Say that the backward passes inside measure class gradients, rather than gradients of the loss."""
    global _measuring
    before, _measuring = _measuring, True
    try:
        yield
    finally:
        _measuring = before


@contextmanager
def per_sample_batch_norm(model: nn.Module) -> Iterator[None]:
    """Let class gradients of what `model` computes inside see each sample alone; see the top of this file."""
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, nn.SyncBatchNorm):
                raise ValueError(f"batch_norm='per_sample' cannot be used with the SyncBatchNorm {name}")
            if isinstance(module, _BatchNorm) and module.training:
                stack.enter_context(replaced(module, "forward", partial(_forward_per_sample, module)))
        yield


@contextmanager
def sync_batch_norm(model: nn.Module, *, per_sample: bool = False, compiled: bool = False) -> Iterator[None]:
    """Let batch norm inside `model` see the batches of all processes, which have shares of the same size.

    `per_sample` lets class gradients treat the statistics as constants, as `per_sample_batch_norm` does. In a
    `compiled` network batch norm stays outside of what is compiled.
    """
    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                forward: Any = partial(_forward_synchronised, module, per_sample, module.forward)
                forward = torch.compiler.disable(forward) if compiled else forward
                stack.enter_context(replaced(module, "forward", forward))
        yield


def _columns(values: Tensor, like: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (like.ndim - 2))


def _others(x: Tensor) -> list[int]:
    return [d for d in range(x.ndim) if d != 1]


def _count_batch(module: _BatchNorm) -> float:
    """Count one more batch, and return how much of it goes into the running statistics."""
    if module.num_batches_tracked is not None:
        module.num_batches_tracked.add_(1)
        if module.momentum is None:
            return 1.0 / float(module.num_batches_tracked)
    return module.momentum or 0.0


class _PerSampleBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, module: _BatchNorm
    ) -> Tensor:
        running = (module.running_mean, module.running_var)
        out, mean, inverse_std = torch.native_batch_norm(
            x, weight, bias, *running, True, _count_batch(module), module.eps
        )
        ctx.save_for_backward(x, weight, mean, inverse_std)
        ctx.eps = module.eps
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        x, weight, mean, inverse_std = ctx.saved_tensors
        if _measuring:
            if torch.is_grad_enabled():
                # Exact mode: to class gradients the statistics are constants, but the weights before this
                # layer do change them.
                inverse_std = (x.var(_others(x), correction=0) + ctx.eps).rsqrt()
            slope = inverse_std if weight is None else inverse_std * weight
            return gradient * _columns(slope, x).to(gradient.dtype), None, None, None
        wanted = list(ctx.needs_input_grad[:3])
        dx, dweight, dbias = torch.ops.aten.native_batch_norm_backward(
            gradient, x, weight, None, None, mean, inverse_std, True, ctx.eps, wanted
        )
        return dx, dweight, dbias, None


def _forward_per_sample(module: _BatchNorm, x: Tensor) -> Tensor:
    module._check_input_dim(x)
    if x.numel() == x.shape[1]:
        raise ValueError(f"batch norm needs more than one value per channel, and got {tuple(x.shape)}")
    return _PerSampleBatchNorm.apply(x, module.weight, module.bias, module)


class _Sum(torch.autograd.Function):
    """The sum over all processes. Its gradient is a sum too, because every process's loss depends on it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004 - torch's
        x = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004
        return _Sum.apply(gradients[0])


def _mean(x: Tensor) -> Tensor:
    return _Sum.apply(x) / dist.get_world_size()


def _statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance per channel over all processes; differentiable, any number of times."""
    share = x.mean(_others(x))
    mean = _mean(share)
    # The variance within shares plus the variance of their means: no large numbers are subtracted.
    spread = x.var(_others(x), correction=0) + (share - mean).square()
    return mean, _mean(spread)


class _SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, per_sample: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        precise = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        mean, variance = _statistics(precise)
        inverse_std = (variance + eps).rsqrt()
        ctx.save_for_backward(x, weight, mean, inverse_std)
        ctx.eps, ctx.per_sample = eps, per_sample
        ctx.mark_non_differentiable(mean, variance)
        slope = inverse_std if weight is None else inverse_std * weight
        offset = -mean * slope if bias is None else bias - mean * slope
        return (precise * _columns(slope, x) + _columns(offset, x)).to(x.dtype), mean, variance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = gradients[0]
        x, weight, mean, inverse_std = ctx.saved_tensors
        kind = gradient.dtype
        if kind in (torch.float16, torch.bfloat16):
            gradient, x = gradient.float(), x.float()
        if torch.is_grad_enabled():  # exact mode differentiates what follows, so it must start from x
            mean, variance = _statistics(x)
            inverse_std = (variance + ctx.eps).rsqrt()
        slope = inverse_std if weight is None else inverse_std * weight
        if ctx.per_sample and _measuring:
            return (gradient * _columns(slope, x)).to(kind), None, None, None, None
        normalised = (x - _columns(mean, x)) * _columns(inverse_std, x)
        total, along = gradient.sum(_others(x)), (gradient * normalised).sum(_others(x))
        both = _mean(torch.stack([total, along])) / (x.numel() // x.shape[1])
        change = gradient - _columns(both[0], x) - normalised * _columns(both[1], x)
        dx = (change * _columns(slope, x)).to(kind)
        wanted = ctx.needs_input_grad
        return dx, along if wanted[1] else None, total if wanted[2] else None, None, None


def _forward_synchronised(module: _BatchNorm, per_sample: bool, plain: Any, x: Tensor) -> Tensor:
    if not module.training:
        return plain(x)
    module._check_input_dim(x)
    out, mean, variance = _SyncBatchNorm.apply(x, module.weight, module.bias, module.eps, per_sample)
    momentum = _count_batch(module)
    if module.running_mean is not None and module.running_var is not None:
        count = dist.get_world_size() * (x.numel() // x.shape[1])
        with torch.no_grad():
            module.running_mean.lerp_(mean.to(module.running_mean), momentum)
            unbiased = variance * (count / max(1, count - 1))
            module.running_var.lerp_(unbiased.to(module.running_var), momentum)
    return out
