"""The identity of a job: a hash of its configuration, with the content of the files that it names."""

import functools
import hashlib
import importlib.machinery
import json
import os
import sysconfig
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lmsweep.config.fields import Component
from lmsweep.files import DamagedError, read_json, sha256_of, write_atomically

# A larger folder is known by the names and sizes of its files, because to read ImageNet takes an hour.
READ_AT_MOST = 2**30
# A file that was written in the last seconds may be written again within the resolution of its time stamp.
SETTLED_SECONDS = 3.0
_PACKAGES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def dotted(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`; an empty group is a value."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            leaves |= dotted(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def drop(tree: dict[str, Any], keys: Iterable[str]) -> None:
    """Take dotted keys out of a tree, where they are there."""
    for key in keys:
        *parents, last = key.split(".")
        node = tree
        for parent in parents:
            node = node.get(parent, {})
        node.pop(last, None)


# Raise this when training changes in a way that makes old results incomparable: every run gets a new id.
# 2: a run keeps its best and its last weights and the results of both; which ones count, a figure says.
SEMANTICS_VERSION = 2
# Made once, because a sweep of 50,000 runs asks for three identities of each.
_ENCODER = json.JSONEncoder(sort_keys=True, allow_nan=False)


def run_id(config: Mapping[str, Any], version: int = SEMANTICS_VERSION) -> str:
    """Return 12 hexadecimal digits that depend on the values in `config`, not on the order of its keys."""
    text = _ENCODER.encode({"version": version, "config": _canonical(config)})
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _canonical(value: Any) -> Any:
    """The same value however it was written: `model.width=1` and `model.width=1.0` are one run."""
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    return [_canonical(item) for item in value] if isinstance(value, list | tuple) else value


def content_of(root: str, components: Mapping[str, Component]) -> dict[str, str]:
    """A digest for every key that names a file or folder below `root`, or a class that the user wrote.

    `components` are those of a run by their key: `data.source`, `model`, `optimizer`.
    """
    found = {}
    for key, component in components.items():
        module = own_module(component.target)
        if module is not None:
            found[f"{key}._target_"] = digest(module)
        for name, value in component.arguments.items():
            if isinstance(value, str) and value and (Path(root) / value).exists():
                found[f"{key}.{name}"] = digest(Path(root) / value)
    return found


def own_module(target: str) -> Path | None:
    """The file of a `_target_`, unless that is ours or of an installed package; nothing is imported."""
    if _is_installed(target.partition(".")[0]):
        return None
    search, found = None, None
    for depth in range(1, target.count(".") + 1):
        name = ".".join(target.split(".")[:depth])
        spec = importlib.machinery.PathFinder.find_spec(name, search)
        if spec is None:
            break
        if spec.origin is not None:
            found = Path(spec.origin)
        search = spec.submodule_search_locations
        if search is None:
            break
    return found


@functools.lru_cache
def _is_installed(package: str) -> bool:
    if package == "lmsweep":
        return True  # SEMANTICS_VERSION stands for what our own code computes
    spec = importlib.machinery.PathFinder.find_spec(package)
    return spec is not None and spec.origin is not None and spec.origin.startswith(_PACKAGES)


def digest(path: Path) -> str:
    """The hash of a file's content, or of all files of a folder; kept beside sizes and time stamps."""
    if path.is_file():
        return _digest(path, [path])
    return _digest_of_folder(path, int(time.monotonic() / SETTLED_SECONDS))


@functools.lru_cache(maxsize=32)
def _digest_of_folder(path: Path, _period: int) -> str:
    # An answer stands for some seconds, so that a sweep of a thousand runs lists a folder of images once.
    return _digest(path, sorted(found for found in path.rglob("*") if found.is_file()))


def _digest(path: Path, files: list[Path]) -> str:
    sizes = [(str(file.relative_to(path)), (stat := file.stat()).st_size, stat.st_mtime_ns) for file in files]
    stamp = _hash(sizes)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmsweep" / "content.json"
    try:
        kept = read_json(cache)
    except (OSError, DamagedError):
        kept = {}  # hashing anew gives the same answer
    if kept.get(str(path.resolve()), [None])[0] == stamp:
        return kept[str(path.resolve())][1]
    if sum(size for _, size, _ in sizes) <= READ_AT_MOST or len(files) == 1:
        found = _hash([(name, sha256_of(file)) for file, (name, _, _) in zip(files, sizes, strict=True)])
    else:
        found = _hash([(name, size) for name, size, _ in sizes])
    newest = max((changed for _, _, changed in sizes), default=0) / 1e9
    if newest < time.time() - SETTLED_SECONDS:
        with suppress(OSError):  # a home that cannot be written costs time, nothing else
            cache.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(cache, json.dumps({**kept, str(path.resolve()): [stamp, found]}))
    return found


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
