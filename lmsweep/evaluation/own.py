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
from lmsweep.models.common import Standardise
from lmsweep.provenance import provenance

TEMPLATE = Path(__file__).with_name("audit_page.html")
PICTURES = 8  # how many samples the page shows
CLASS_IN_NAME = re.compile(r".*_(\d+)\.\w+")


def audit_own(config: OwnAuditConfig, names: Mapping[str, str]) -> dict[str, Any]:
    """Audit, judge, and write the page and its JSON; `names` are those of attacks for readers."""
    device = device_of(config)
    network = load_network(config).to(device)
    x, y = load_images(config.images, config.size)
    x, y = x[: config.samples], y[: config.samples]
    batches = EvaluationBatches(Split(x, y), config.batch_size)
    _try_out(network, x[:1].to(device), y, config)
    keys = config.model_dump(include={"epsilons", "alpha", "unbounded_alpha", "seed"})
    evidence = masking.measure(network, batches, attack=config.attack, **keys)
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
    x, y = x[:PICTURES].to(device), y[:PICTURES].to(device)
    ascend = partial(apgd, network, x, y, steps=40, loss="margin", seed=config.seed)
    rows = {0.0: x, **{epsilon: ascend(epsilon=epsilon) for epsilon in sorted(config.epsilons)}}
    write_page(page / "index.html", results, names, _picture_rows(network, rows))
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
    mean, std = config.mean, config.std
    if (mean, std) != (None, None):
        if not (mean and std and len(mean) == len(std)):
            raise ConfigError("mean and std must both be lists of numbers per channel, or both null.")
        network = nn.Sequential(Standardise(len(mean), mean, std), network)
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


def write_page(path: Path, results: Mapping[str, Any], names: Mapping[str, str], pictures: str) -> None:
    """Write one file of HTML that needs no other: verdict, curves, indicators, and examples as pictures."""
    evidence = results["evidence"]
    curves = {names.get(key, key): values for key, values in evidence["curves"].items()}
    curves["worst of all"] = evidence["worst"]
    found = Evidence(**evidence)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(TEMPLATE.read_text()).render(
        results=results,
        evidence=evidence,
        curves=curves,
        signs=found.signs,
        raised=found.raised(results["thresholds"]),
        advice=ADVICE,
        plot=_plot(evidence, curves),
        pictures=pictures,
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
        style: dict[str, Any] = {"marker": "o", "markersize": 3}
        if name == "worst of all":
            style = {"color": "black", "linewidth": 2.5}
        panel.plot(x, [100 * v for v in (evidence["clean"], *values)], label=name, **style)
    panel.set(xlabel="epsilon", ylabel="accuracy (%)", ylim=(-2, 102))
    figure.legend(loc="outside right center", fontsize=8, frameon=False)
    return _encoded(figure)


@torch.no_grad()
def _picture_rows(network: nn.Module, rows: Mapping[float, Tensor]) -> str:
    """A row of images per epsilon; a title tells the class that the network sees."""
    from matplotlib.figure import Figure

    count = len(rows[0.0])
    figure = Figure(figsize=(1.1 * count + 0.6, 1.35 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), count, squeeze=False)
    right = network(rows[0.0]).argmax(1).tolist()
    for line, (epsilon, images) in zip(panels, rows.items(), strict=True):
        classes = network(images).argmax(1).tolist()
        for panel, picture, seen, before in zip(line, images.cpu(), classes, right, strict=True):
            shown = picture.permute(1, 2, 0) if picture.ndim == 3 else picture.view(1, -1, 1)
            panel.imshow(shown if shown.shape[2] == 3 else shown[..., 0], cmap="gray", vmin=0, vmax=1)
            panel.set_title(str(seen), fontsize=8, color="black" if seen == before else "tab:red")
            panel.set(xticks=[], yticks=[])
        line[0].set_ylabel(f"{epsilon:g}", fontsize=8)
    return _encoded(figure)
