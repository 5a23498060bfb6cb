"""Make `import torchvision` work where its compiled operators do not load.

A torchvision wheel built for CUDA beside a CPU build of torch cannot load its shared library, and then
`import torchvision` stops with "operator torchvision::nms does not exist", because it registers meta
kernels for operators that were never defined. torchmetrics and Lightning import torchvision and fail with
it. Declaring the two operators' schemas is enough for everything except calling those two operators.

`install()` puts a finder on `sys.meta_path` instead of importing torchvision, because that import costs
more than a second and many commands never need it. The finder acts on the first import of torchvision
only, and changes nothing unless that import fails in exactly this way.

`import pytorch_lightning` before `import lmsweep` needs the finder earlier: `make setup` calls
`install_at_start` where torchvision does not load, which lets every Python of the environment install the
finder when it starts.
"""

import sys
import sysconfig
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_libraries: list[object] = []  # torch forgets a schema when its Library object is collected


class _RetryingLoader(Loader):
    """Torchvision's own loader, which runs the module a second time after declaring the operators."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        try:
            self.loader.exec_module(module)
        except RuntimeError as error:
            if "operator torchvision::" not in str(error):
                raise
            _declare_operators()
            for name in [n for n in sys.modules if n.startswith("torchvision.")]:
                del sys.modules[name]
            self.loader.exec_module(module)


class _TorchvisionFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torchvision":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _RetryingLoader(spec.loader)
        return spec


def _declare_operators() -> None:
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS:
        library.define(schema)
    _libraries.append(library)


def install() -> None:
    """Guard the first import of torchvision; calling it again does nothing."""
    if not any(isinstance(finder, _TorchvisionFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TorchvisionFinder())


def install_at_start(folder: Path | None = None) -> None:
    """Let Python call `install` when it starts: it runs the `.pth` files of its package folder."""
    folder = folder or Path(sysconfig.get_path("purelib"))
    line = f"import {__package__}._torchvision; {__package__}._torchvision.install()\n"
    (folder / "lmsweep_torchvision.pth").write_text(line)
