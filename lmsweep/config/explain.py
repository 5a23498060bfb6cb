"""One clear sentence for everything that can be wrong with a configuration."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, get_args

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lmsweep.errors import ConfigError

Schema = type[BaseModel]


def unknown_key(schema: Schema, key: str, group: str = "") -> str:
    """A key that does not exist, and those that do; `schema` is that of `group`."""
    *parents, last = key.split(".")
    fields = _walk(schema, parents)
    node = schema if not parents else _nested(fields[-1]) if len(fields) == len(parents) else None
    path = [*([group] if group else []), *parents]
    if node is None:
        return f"There is no key {'.'.join([*path, last])}; `lmsweep --help` lists all keys."
    return _no_key([*path, last], [field.alias or name for name, field in node.model_fields.items()])


def _no_key(path: list[str], names: Iterable[str]) -> str:
    group = ".".join(path[:-1]) or "the configuration"
    return f"There is no key {'.'.join(path)}; {group} has {', '.join(names)}."


def invalid_value(
    schema: Schema,
    error: Mapping[str, Any],
    where: str = "on the command line or in conf/",
    group: str = "",
) -> str:
    """A value that pydantic refused: what it was, what is allowed, `where` to change it.

    `schema` is that of the whole configuration or of one `group`. A check of values seen together raises a
    ValueError whose sentence begins with one of the keys.
    """
    path = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden":
        return unknown_key(schema, ".".join(path), group)
    fields = _walk(schema, path)
    above = [group] if group else []
    if len(fields) == len(path) and (not path or _nested(fields[-1])) and "error" in error.get("ctx", {}):
        return ".".join([*above, *path, str(error["ctx"]["error"])])
    key = ".".join([*above, *path[: len(fields)]])
    problem = " is missing" if error["type"] == "missing" else f"={_as_typed(error['input'])} is not allowed"
    allowed = (fields[-1].description if fields else None) or "a group of keys"
    return f"{key}{problem}: it must be {allowed}; change it {where}."


def hydra_error(schema: Schema, error: BaseException) -> str:
    """Something that Hydra could not compose."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, option = error.missing_cfg_file.rpartition("/")
        allowed = ", ".join(sorted(error.options))
        return (
            f"{group}={option} is not allowed: it must be one of {allowed}; the files are in conf/{group}/."
        )
    if isinstance(error, OverrideParseException):
        reason = str(error.message).splitlines()[0]
        return f"The argument {error.override!r} cannot be read ({reason}); write key=value."
    resolving = re.search(
        r"ConfigError raised while resolving interpolation: (.*)\s+full_key: (\S+)", str(error)
    )
    if resolving:
        return "{}; say {}=VALUE.".format(*resolving.groups())
    text = " ".join(str(part) for part in (error, error.__cause__) if part)
    unknown = re.search(r"is not in struct\s+full_key: (\S+)", text)
    if unknown:
        path = unknown.group(1).split(".")
        parent = getattr(error.__cause__, "parent_node", None)
        # Which keys a group has depends on what was chosen for it, so Hydra's own node knows best.
        if len(path) > 1 and isinstance(parent, DictConfig):
            return _no_key(path, map(str, parent))
        return unknown_key(schema, unknown.group(1))
    return re.sub(r"\s+", " ", text).strip()


@contextmanager
def explained(schema: Schema) -> Iterator[None]:
    """Turn what Hydra cannot compose inside into a ConfigError with one sentence."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(hydra_error(schema, error)) from None


def _walk(schema: Schema, path: list[str]) -> list[FieldInfo]:
    """The fields along a path, as far as the schema goes: beyond are list indices and free arguments."""
    node: Schema | None = schema
    fields: list[FieldInfo] = []
    for part in path:
        known = node.model_fields.items() if node else ()
        field = next((f for name, f in known if part in (name, f.alias)), None)
        if field is None:
            break
        fields.append(field)
        node = _nested(field)
    return fields


def _nested(field: FieldInfo) -> Schema | None:
    kinds = get_args(field.annotation) or (field.annotation,)  # a group that may be left out is a union
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _as_typed(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | None) else str(value)
