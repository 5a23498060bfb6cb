"""Figures as if they had been drawn: records by hand, with texts that try to break out of the page."""

import csv
import io
import json
from pathlib import Path
from typing import Any

from PIL import Image

NASTY = "<script>document.title = 'taken'</script>"
ATTRIBUTE = '" onmouseover="document.title=1" x="'
UNICODE = "\u03b3 ≥ ½, 大マージン, a\u0301, \U0001f600"
METHODS = ("xent", "hinge", "margin_l1_all", "margin_l2_all", "margin_linf_all", "margin_l2_input")
NOISES = (0.0, 0.2, 0.4, 0.6, 0.8)


def run_name(method: str, x: float, seed: int) -> str:
    return f"{abs(hash_of(method)) + round(x * 10):010x}{seed:02x}"


def hash_of(text: str) -> int:
    return sum(ord(letter) * 31**place for place, letter in enumerate(text)) % 16**9


def claim(name: str, verdict: str, **more: Any) -> dict[str, Any]:
    known = {"says": f"{name} is said.", "where": "Sec. 4.2", "kind": "value", "scale": "smoke"}
    return (
        {"id": name, "verdict": verdict, "ours": "96.1% [95.8, 96.4]", "paper": "96.4%", "n": 2}
        | known
        | more
    )


def record(figure: str = "fig2_mnist_noise", scale: str = "smoke", **more: Any) -> dict[str, Any]:
    selected = [
        {
            "panel": "noise",
            "method": method,
            "x": x,
            "hyperparameters": {"optimizer": {"lr": 0.01}, "trainer": {"max_steps": 600}}
            | ({"margin": {"gamma": 2.0 + 10 * x, "weight": 0.5}} if "margin" in method else {}),
            "val_accuracy": 0.95 - x / 10,
            "runs": [run_name(method, x, seed) for seed in (0, 1)],
        }
        for method in METHODS
        for x in NOISES
    ]
    return {
        "figure": figure,
        "scale": scale,
        "title": "MNIST, noisy labels",
        "paper": "Figure 2 (left)",
        "question": "Does a large margin keep the test accuracy up when training labels are wrong?",
        "command": f"make reproduce-figure FIG={figure} SCALE={scale}",
        "provenance": {
            "commit": "72eb7ed" * 5 + "72eb7",
            "dirty": True,
            "python": "3.11.7",
            "torch": "2.13.0",
        },
        "training": {"seconds": 410.0, "longest": 9.5, "energy_joules": None, "machines": []},
        "selection": {
            "rule": "best_validation",
            "checkpoint": "best",
            "sentence": "Best mean validation accuracy over seeds.",
        },
        "intervals": "Student's t",
        "runs": sorted(run for cell in selected for run in cell["runs"]),
        "evaluations": [],
        "seeds": [0, 1],
        "trained": 124,
        "missing": [],
        "selected": selected,
        "claims": [
            claim("l2_at_80", "holds", says="Margin l2 on all layers reaches 96.4% at 80% noise."),
            claim(
                "beats", "fails", says="All margins beat cross-entropy.", paper="+2.5% at 80%", ours="-1.0%"
            ),
            claim("all_input", "not resolved", says="All layers beat the input only.", paper="", n=10),
            claim("no_number", "not run", says="It trains fast.", ours="not measured", paper="", n=0),
        ],
        "audit": [],
        "references": [],
    } | more


def nasty_record(figure: str = "fig10_mnist_gaussian", scale: str = "smoke") -> dict[str, Any]:
    return record(
        figure,
        scale,
        title=f"Gaussian & {NASTY}",
        question=f"Is {UNICODE} <b>bold</b>?",
        command=f"make FIG='{ATTRIBUTE}'",
        provenance={"commit": None, "dirty": None, "python": NASTY},
        evaluations=["e0e1e2e3"],
        claims=[claim("nasty", "holds", says=NASTY, where=ATTRIBUTE, ours=UNICODE, paper="</table>", n=3)],
        missing=[
            {"panel": "noise", "method": "hinge", "x": 0.6, "reason": f"failed: {NASTY}"},
            {"panel": "noise", "method": "hinge", "x": 0.8, "reason": f"failed: {NASTY}"},
            {"panel": "noise", "method": "xent", "x": 0.0, "reason": "not evaluated"},
        ],
        audit=[{"method": "xent", "run": "../x?y#z", "verdict": "gradients masked", "reasons": [NASTY, "b"]}],
        references=[
            {"panel": "noise", "name": f"Gal & al. {NASTY}", "points": [[0.0026, 0.9]], "note": UNICODE}
        ],
    )


def draw(outputs: Path, content: dict[str, Any], picture: bytes | None = None) -> Path:
    """Leave what drawing a figure leaves."""
    folder = outputs / "figures" / content["scale"]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{content['figure']}.json"
    path.write_text(json.dumps(content))
    if picture is None:
        file = io.BytesIO()
        Image.new("RGB", (680, 420), "white").save(file, "PNG")
        picture = file.getvalue()
    path.with_suffix(".png").write_bytes(picture)
    path.with_suffix(".pdf").write_bytes(b"%PDF-1.4")
    with path.with_suffix(".csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["method", "x", "mean", "low", "high", "n", "selected", "panel", "setting", "val"])
        for cell in content["selected"]:
            mean = cell["val_accuracy"] + 0.0123456
            numbers = [mean, mean - 0.01, mean + 0.01, 2]
            runs = " ".join(cell["runs"])
            table.writerow(
                [cell["method"], cell["x"], *numbers, runs, cell["panel"], "{}", cell["val_accuracy"]]
            )
    return path
