"""One look per method, in all figures."""

import pytest

from lmsweep.figures.drawing.style import BLACK, GREY, in_math, method_style

LABELS = {
    "xent": "Cross-entropy",
    "hinge": "Hinge",
    "margin_l1_input": "Margin l1, input only",
    "margin_l1_all": "Margin l1, all layers",
    "margin_l2_input": "Margin l2, input only",
    "margin_l2_all": "Margin l2, all layers",
    "margin_linf_input": "Margin linf, input only",
    "margin_linf_all": "Margin linf, all layers",
    "xent+fgsm": "Cross-entropy, FGSM-trained",
    "xent+pgd": "Cross-entropy, PGD-trained",
    "margin_linf_all+fgsm": "Margin linf, all layers, FGSM-trained",
    "margin_linf_all+pgd": "Margin linf, all layers, PGD-trained",
    "xent+bald": "Cross-entropy, BALD",
    "xent+random": "Cross-entropy, random images",
    "xent+max_entropy": "Cross-entropy, maximum entropy",
    "margin_linf_even:5": "Margin linf, 5 layers",
    "margin_l2_all_softmax_exact": "Margin l2, all layers, softmax, exact",
    "margin_l2_conv1+conv2": "Margin l2, conv1+conv2",
    "margin_l1.5_input": "Margin l1.5, input only",
    "liu": "Large-margin softmax",
    "gce": "GCE",
    "jacobian": "Jacobian",
    "parseval": "Parseval",
    "trades": "TRADES",
    "trades@method.trades.beta=6": "TRADES, beta 6",
}


@pytest.mark.parametrize("method", LABELS)
def test_labels(method):
    assert method_style(method).label == LABELS[method]


def test_no_two_methods_look_the_same():
    plain = [method for method in LABELS if "@" not in method]
    looks = {(s.color, s.marker, str(s.line), s.filled) for s in map(method_style, plain)}
    assert len(looks) == len(plain)


def test_colour_says_the_norm_fill_and_dash_the_layers():
    for norm in ("l1", "l2", "linf"):
        all_layers, at_input = method_style(f"margin_{norm}_all"), method_style(f"margin_{norm}_input")
        assert all_layers.color == at_input.color
        assert (all_layers.filled, all_layers.line) == (True, "-")
        assert not at_input.filled
        assert at_input.line != "-"
        assert method_style(f"margin_{norm}_all+pgd").color == all_layers.color
    assert method_style("xent").color == BLACK
    assert method_style("hinge").color == GREY


def test_norms_are_set_as_in_the_paper_and_dollars_as_dollars():
    assert method_style("margin_linf_all").legend == r"Margin $\ell_{\infty}$, all layers"
    assert in_math("l2 for 5$, small l2x") == r"$\ell_{2}$ for 5\$, small l2x"


def test_a_variant_has_the_look_of_its_method_and_says_what_it_goes_without():
    plain, without = method_style("xent@model.dropout=0.2"), method_style("xent@model.dropout=0")
    assert (plain.label, without.label) == ("Cross-entropy, dropout 0.2", "Cross-entropy, dropout 0")
    assert plain.line == method_style("xent").line != without.line
    assert method_style("margin_l2_all@optimizer.name=sgd").label == "Margin l2, all layers, sgd"
    both = method_style("xent@model.dropout=0@optimizer.lr=0.003")
    assert (both.label, both.line) == ("Cross-entropy, dropout 0, lr 0.003", without.line)
