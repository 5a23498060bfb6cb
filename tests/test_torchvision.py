"""`import lmsweep` leaves torchvision and all that imports it usable, and stays cheap itself."""

import subprocess
import sys

from lmsweep._torchvision import install_at_start


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)


def test_torchvision_torchmetrics_and_lightning_import_after_lmsweep():
    done = python(
        "import lmsweep, torchvision, torchmetrics, pytorch_lightning\n"
        "from torchvision.models import resnet18\n"
        "import torch\n"
        "print(tuple(resnet18(num_classes=3)(torch.zeros(2, 3, 32, 32)).shape))"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(2, 3)"


def test_lightning_imports_before_lmsweep_once_the_environment_is_set_up(tmp_path):
    """As `make setup` does where torchvision's operators do not load; elsewhere it imports anyway."""
    install_at_start(tmp_path)
    done = python(
        f"import site; site.addsitedir({str(tmp_path)!r})\n"
        "import pytorch_lightning, lmsweep\nprint(lmsweep.run.__name__)"
    )
    assert done.stdout.strip() == "run", done.stderr


def test_a_failed_import_before_does_not_spoil_the_one_after():
    done = python(
        "try:\n    import torchvision\nexcept RuntimeError:\n    pass\n"
        "import lmsweep, torchvision, torchvision.transforms.v2\nprint('ok')"
    )
    assert done.stdout.strip() == "ok", done.stderr


def test_importing_lmsweep_imports_neither_torch_nor_torchvision():
    done = python("import lmsweep, sys; print([m for m in ('torch', 'torchvision') if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_other_import_errors_of_torchvision_are_not_hidden(tmp_path):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('something else')")
    done = python(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport lmsweep, torchvision")
    assert done.returncode != 0
    assert "something else" in done.stderr


def test_a_torchvision_that_imports_is_left_alone(tmp_path):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("value = 7")
    done = python(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import lmsweep, torchvision\nprint(torchvision.value, 'torch' in sys.modules)"
    )
    assert done.stdout.strip() == "7 False", done.stderr
