"""`python -m tests.figures.golden.remake` writes the committed store anew, after a change of the schema."""

import shutil
from pathlib import Path

from lmsweep.config.identity import run_id
from lmsweep.store.store import Store
from tests.config.test_run import config

HERE = Path(__file__).parent
# (method, gamma, noise) -> validation and test accuracy of two seeds; the better ones differ.
NUMBERS = {
    ("xent", 1, 0.0): ([0.90, 0.92], [0.89, 0.91]),
    ("xent", 1, 0.4): ([0.50, 0.52], [0.70, 0.72]),
    ("margin", 1, 0.0): ([0.91, 0.91], [0.90, 0.895]),
    ("margin", 1, 0.4): ([0.55, 0.57], [0.78, 0.80]),
    ("margin", 2, 0.0): ([0.90, 0.91], [0.99, 0.99]),
    ("margin", 2, 0.4): ([0.54, 0.50], [0.95, 0.95]),
}


def main() -> None:
    store = Store(HERE / "outputs")
    shutil.rmtree(store.root, ignore_errors=True)
    for (method, gamma, noise), values in NUMBERS.items():
        for seed, (validation, test) in enumerate(zip(*values, strict=True)):
            one = config(
                f"method={method}", f"margin.gamma={gamma}", f"data.label_noise={noise}", f"seed={seed}"
            )
            folder = store.lease(run_id(one.identity_dict()), one.to_dict(), one.about())
            metrics = {"steps": 100, "val_accuracy": validation, "test_accuracy": test}
            seconds = 1.0 if method == "xent" else 3.0
            folder.finish({"metrics": metrics, "seconds": seconds, "train_seconds": seconds})
    failed = config("method=hinge", "data.label_noise=0.4")
    store.lease(run_id(failed.identity_dict()), failed.to_dict(), failed.about()).fail("it broke", "")
    (store.root / ".lock").unlink()


if __name__ == "__main__":
    main()
