"""The audit of a network that no store has: weights in a file, labelled images, and a page of findings."""

import base64
import io
import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import torch
from hydra.utils import instantiate
from torch import Tensor, nn

from lmsweep.attacks import apgd, masking
from lmsweep.attacks.measures.indicators import ADVICE
from lmsweep.attacks.measures.masking import Evidence
from lmsweep.config.evaluation import OwnAuditConfig
from lmsweep.data import EvaluationBatches, Split
from lmsweep.errors import ConfigError, UserError
from lmsweep.evaluation.jobs import judged
from lmsweep.evaluation.measure import device_of
from lmsweep.provenance import provenance

TEMPLATE = Path(__file__).with_name("audit_page.html")
PICTURES = 8  # how many samples the page shows
CLASS_IN_NAME = re.compile(r".*_(\d+)\.\w+")


class Standardised(nn.Module):
    """A network that wants other values than [0, 1], behind what makes them."""

    def __init__(self, network: nn.Module, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.network = network
        self.mean, self.std = (
            nn.Buffer(torch.tensor(values).view(-1, 1, 1), persistent=False) for values in (mean, std)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images in [0, 1]."""
        logits: Tensor = self.network((x - self.mean) / self.std)
        return logits


def audit_own(config: OwnAuditConfig, names: Mapping[str, str]) -> dict[str, Any]:
    """Audit, judge, and write the page and its JSON; `names` are those of attacks for readers."""
    device = device_of(config)
    network = load_network(config).to(device)
    x, y = load_images(config.images, config.size)
    x, y = x[: config.samples], y[: config.samples]
    batches = EvaluationBatches(Split(x, y), config.batch_size)
    _try_out(network, x[:1].to(device), y, config)
    evidence = masking.measure(
        network,
        batches,
        epsilons=config.epsilons,
        alpha=config.alpha,
        unbounded_alpha=config.unbounded_alpha,
        attack=config.attack,
        seed=config.seed,
    )
    results: dict[str, Any] = {"evidence": evidence.to_dict()}
    verdict, reasons = judged(config, results)
    results |= {
        "network": config.model.target,
        "weights": config.weights,
        "images": config.images,
        "attack": config.attack.identity(transfer=False),
        "thresholds": config.thresholds.model_dump(),
        "verdict": verdict,
        "reasons": reasons,
        "provenance": provenance(),
    }
    page = Path(config.page)
    page.mkdir(parents=True, exist_ok=True)
    (page / "audit.json").write_text(json.dumps(results, indent=1))
    write_page(page / "index.html", results, names, *_pictures(network, x, y, config, device))
    return results


def load_network(config: OwnAuditConfig) -> nn.Module:
    """The network with its weights, for images in [0, 1]."""
    network = instantiate({"_target_": config.model.target, **config.model.arguments})
    if not isinstance(network, nn.Module):
        raise ConfigError(f"model._target_={config.model.target} gave no torch.nn.Module")
    if config.weights is not None:
        try:
            state = torch.load(config.weights, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            raise UserError(f"{config.weights} is missing: weights must be a file of torch.save.") from None
        state = state.get("state_dict", state)
        try:  # networks trained on several devices have a prefix before every name
            network.load_state_dict({name.removeprefix("module."): value for name, value in state.items()})
        except RuntimeError as error:
            raise UserError(f"{config.weights} does not fit {config.model.target}: {error}.") from None
    if (config.mean is None) != (config.std is None):
        raise ConfigError("mean and std must both be lists of numbers per channel, or both null.")
    if config.mean is not None and config.std is not None:
        network = Standardised(network, config.mean, config.std)
    return network.eval()


def load_images(place: str, size: int | None) -> tuple[Tensor, Tensor]:
    """Images in [0, 1] and their classes: of an .npz, of a folder per class, or of files NAME_CLASS.png."""
    if place.endswith(".npz"):
        with np.load(place, allow_pickle=False) as arrays:
            found = [name for name in ("x", "x_test") if name in arrays and name.replace("x", "y") in arrays]
            if not found:
                raise UserError(f"{place} has no arrays x and y, nor x_test and y_test.")
            x, y = arrays[found[-1]], arrays[found[-1].replace("x", "y")]
        images = torch.from_numpy(x)
        images = images.float() / 255 if images.dtype == torch.uint8 else images.float()
        return images.unsqueeze(1) if images.ndim == 3 else images, torch.from_numpy(y).long()
    if Path(place).is_dir():
        folders = sorted(path for path in Path(place).iterdir() if path.is_dir())
        numbers = all(folder.name.isdigit() for folder in folders)
        labelled = [
            (file, int(folder.name) if numbers else number)
            for number, folder in enumerate(folders)
            for file in sorted(folder.iterdir())
        ]
    else:
        files = sorted(Path(place).parent.glob(Path(place).name))
        matches = [(path, CLASS_IN_NAME.fullmatch(path.name)) for path in files]
        labelled = [(path, int(match[1])) for path, match in matches if match]
    if not labelled:
        raise UserError(
            f"images={place} names no images: it must be an .npz with x and y, a folder with a folder per "
            "class, or a pattern of files NAME_CLASS.png."
        )
    pictures = [_read(path, size) for path, _ in labelled]
    if len({picture.shape for picture in pictures}) > 1:
        raise UserError(f"images={place} have several sizes: set size to the network's, as in size=224.")
    return torch.stack(pictures), torch.tensor([y for _, y in labelled])


def _read(path: Path, size: int | None) -> Tensor:
    from PIL import Image
    from torchvision.transforms.functional import center_crop, pil_to_tensor, resize

    image = pil_to_tensor(Image.open(path).convert("RGB"))
    if size is not None:
        image = center_crop(resize(image, [size]), [size, size])
    return image.float() / 255


@torch.no_grad()
def _try_out(network: nn.Module, x: Tensor, y: Tensor, config: OwnAuditConfig) -> None:
    try:
        logits = network(x)
    except RuntimeError as error:
        raise UserError(
            f"{config.model.target} does not take images of the shape {tuple(x.shape)}: {error}."
        ) from None
    if logits.ndim != 2 or int(y.max()) >= logits.shape[1]:
        raise UserError(
            f"{config.model.target} gives {tuple(logits.shape)} for one image: it must give logits (1, "
            f"classes), of more than {int(y.max())} classes."
        )


def _pictures(
    network: nn.Module, x: Tensor, y: Tensor, config: OwnAuditConfig, device: torch.device
) -> tuple[list[float], Tensor, Tensor]:
    """For the first samples: the images at epsilon 0 and each other one, and the classes of them all."""
    x, y = x[:PICTURES].to(device), y[:PICTURES].to(device)
    epsilons = sorted(config.epsilons)
    ascend = partial(apgd, network, x, y, steps=40, loss="margin", seed=config.seed)
    rows = [x, *(ascend(epsilon=epsilon) for epsilon in epsilons)]
    with torch.no_grad():
        classes = torch.stack([network(row).argmax(1) for row in rows])
    return [0.0, *epsilons], torch.stack(rows).cpu(), classes.cpu()


def write_page(
    path: Path,
    results: Mapping[str, Any],
    names: Mapping[str, str],
    epsilons: Sequence[float],
    images: Tensor,
    classes: Tensor,
) -> None:
    """Write one file of HTML that needs no other: verdict, curves, indicators, and examples as pictures.

    `images` and `classes` are (epsilons, samples, ...).
    """
    evidence, limits = results["evidence"], results["thresholds"]
    curves = {names.get(key, key): values for key, values in evidence["curves"].items()}
    signs = [
        {
            "name": name.replace("_", " "),
            "value": value,
            "limit": limits[name],
            "raised": value is not None and value > limits[name],
            "means": ADVICE[name][0].format(value or 0.0),
            "advice": ADVICE[name][1],
        }
        for name, value in Evidence(**evidence).signs.items()
    ]
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(TEMPLATE.read_text()).render(
        results=results,
        evidence=evidence,
        curves={**curves, "worst of all": evidence["worst"]},
        signs=signs,
        plot=_plot(evidence, curves),
        pictures=_picture_rows(epsilons, images, classes),
    )
    path.write_text(page)


def _encoded(figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return base64.b64encode(buffer.getvalue()).decode()


def _plot(evidence: Mapping[str, Any], curves: Mapping[str, Sequence[float]]) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    panel = figure.subplots()
    x = [0.0, *evidence["epsilons"]]
    for name, values in curves.items():
        panel.plot(x, [100 * v for v in (evidence["clean"], *values)], marker="o", markersize=3, label=name)
    worst = [100 * v for v in (evidence["clean"], *evidence["worst"])]
    panel.plot(x, worst, color="black", linewidth=2.5, label="worst of all")
    panel.set(xlabel="epsilon", ylabel="accuracy (%)", ylim=(-2, 102))
    figure.legend(loc="outside right center", fontsize=8, frameon=False)
    return _encoded(figure)


def _picture_rows(epsilons: Sequence[float], images: Tensor, classes: Tensor) -> str:
    """A row per epsilon; a title tells the class that the network sees."""
    from matplotlib.figure import Figure

    count = images.shape[1]
    figure = Figure(figsize=(1.1 * count + 0.6, 1.35 * len(epsilons)), layout="constrained")
    for i, row in enumerate(figure.subplots(len(epsilons), count, squeeze=False)):
        for j, panel in enumerate(row):
            picture = images[i, j]
            shown = picture.permute(1, 2, 0) if picture.ndim == 3 else picture.view(1, -1, 1)
            panel.imshow(shown if shown.shape[2] == 3 else shown[..., 0], cmap="gray", vmin=0, vmax=1)
            changed = bool(classes[i, j] != classes[0, j])
            panel.set_title(str(int(classes[i, j])), fontsize=8, color="tab:red" if changed else "black")
            panel.set(xticks=[], yticks=[])
        row[0].set_ylabel(f"{epsilons[i]:g}", fontsize=8)
    return _encoded(figure)
