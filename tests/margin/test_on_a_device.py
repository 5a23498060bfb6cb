"""What a GPU would see, told without one: the traced step, and a device that holds shapes and no values."""

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from lmsweep.margin.distance import CLASSES_AT_ONCE, linearised_margins
from lmsweep.margin.layers import capture
from lmsweep.margin.loss import layer_losses, sample_losses, telemetry
from lmsweep.models import ConvNet

NAMES = ("input", "conv1", "conv2", "fc1", "fc2", "output")
GAMMA = (0.5, 1.0, 2.0, 1.0, 3.0, 1.0)
OPTIONS = {"norm": 2.0, "top_k": None, "epsilon": 1e-6, "exact": False, "score": "logit"}
WAYS = {
    "every class": {},
    "best-scored class": {"top_k": 1},
    "three classes, softmax, l1": {"top_k": 3, "score": "softmax", "norm": 1.0},
    "weights of layers, linf": {"layer_weights": GAMMA, "norm": "inf"},
    "a norm of its own": {"norm": 3.0, "top_k": 2},
    "exact": {"exact": True, "top_k": 2},
}


def network(classes=10):
    torch.manual_seed(0)
    return ConvNet((1, 8, 8), classes, channels=[4, 8], dense=[8, 8], kernel_size=3, pool=[1, 2], dropout=0.0)


def step(net, x, y, batched, **options):
    """A training step as the callback makes it, telemetry too: the loss, then a gradient per parameter."""
    with capture(net, NAMES) as captured:
        logits = net(x)
    layers = {name: captured.layers[name] for name in NAMES}
    margins = linearised_margins(logits, y, layers, batched=batched, **{**OPTIONS, **options})
    per_layer = layer_losses(margins, gamma=GAMMA, aggregation="max", clip=2.0)
    telemetry(margins, logits, NAMES, gamma=GAMMA, epsilon=1e-6, clip=2.0)
    loss = F.cross_entropy(logits, y) + sample_losses(per_layer, "sum").mean()
    return loss, *torch.autograd.grad(loss, list(net.parameters()))


@pytest.mark.parametrize("batched", [False, True], ids=["one by one", "batched"])
@pytest.mark.parametrize("way", WAYS)
def test_a_device_without_values_can_run_the_step(way, batched):
    """Every read of a value raises here, so shapes, branches and loops depend on none."""
    net = network().to("meta")
    x = torch.empty(6, 1, 8, 8, device="meta")
    y = torch.empty(6, dtype=torch.long, device="meta")
    loss, *gradients = step(net, x, y, batched, **WAYS[way])
    assert loss.shape == ()
    assert loss.device.type == "meta"
    assert [g.shape for g in gradients] == [p.shape for p in net.parameters()]


def test_the_device_without_values_does_refuse_a_read():
    with pytest.raises(RuntimeError, match="meta"):
        bool(torch.ones((), device="meta") > 0)


def traced(net, x, y, batched, **options):
    """The step as a graph of operations, parameters among its inputs; the trace knows shapes only."""
    names = [name for name, _ in net.named_parameters()]

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x, y):
            return step(self.net, x, y, batched, **options)

    def function(x, y, *parameters):
        given = {f"net.{name}": p for name, p in zip(names, parameters, strict=True)}
        return functional_call(Step(), given, (x, y))

    inputs = (x, y, *(p.detach().requires_grad_() for p in net.parameters()))
    return make_fx(function, tracing_mode="fake")(*inputs), inputs


@pytest.mark.parametrize(("batched", "classes"), [(False, 10), (True, 10), (True, 20)])
def test_the_trace_has_one_sweep_per_class_or_per_group_and_gives_the_same(batched, classes):
    net = network(classes)
    x, y = torch.rand(6, 1, 8, 8), torch.arange(6) % classes
    graph, inputs = traced(net, x, y, batched)
    calls = Counter(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
    passes = -(-(classes - 1) // CLASSES_AT_ONCE) if batched else classes - 1
    # Both convolutions are differentiated in every pass for class gradients, the first one by a matrix
    # product (`ImageConv2d`), and both in the pass of the loss, which goes to weights and not to images.
    assert calls["aten.bmm.default"] == passes
    assert calls["aten.convolution_backward.default"] == passes + 2
    # Beside class gradients the loss is differentiated once, and there is one forward pass for all of it.
    assert calls["aten.convolution.default"] == 2
    for ours, real in zip(graph(*inputs), step(net, x, y, False), strict=True):
        torch.testing.assert_close(ours, real, rtol=1e-4, atol=1e-6)


def test_autocast_lowers_the_network_and_not_the_distances():
    def half(x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return step(network(), x, y, True, top_k=2)[0]

    graph = make_fx(half, tracing_mode="fake", _allow_non_fake_inputs=True)(
        torch.rand(6, 1, 8, 8), torch.arange(6)
    )
    types = {
        str(node.target): node.meta["val"].dtype
        for node in graph.graph.nodes
        if isinstance(node.meta.get("val"), torch.Tensor)
    }
    assert types["aten.convolution.default"] == types["aten.addmm.default"] == torch.bfloat16
    assert types["aten.linalg_vector_norm.default"] == types["aten.div.Tensor"] == torch.float32


def test_each_layer_compiles_as_one_piece_and_the_sweeps_still_pass_it():
    """torch.compile in its strict form, which stops at a branch on data, without the compiler behind it."""
    net, plain = network(), network()
    for name in NAMES[1:-1]:
        layer = net.get_submodule(name)
        layer.forward = torch.compile(layer.forward, backend="aot_eager", fullgraph=True)
    x, y = torch.rand(6, 1, 8, 8), torch.arange(6)
    with torch._functorch.config.patch(donated_buffer=False):
        ours = step(net, x, y, False)
    for a, b in zip(ours, step(plain, x, y, False), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
