"""What a value of a configuration can be, and one clear sentence for everything else.

Each description completes the sentence "it must be ..." in the error a user sees; a Literal describes itself.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    create_model,
)
from pydantic.fields import FieldInfo

from lmsweep.errors import ConfigError, UserError
from lmsweep.margin import options


def _field(allowed: options.Allowed) -> Any:
    def read(value: Any) -> Any:
        try:
            return allowed.read(value)
        except TypeError:  # pydantic explains a ValueError only
            raise ValueError from None

    return Annotated[
        Any,
        PlainValidator(read),
        PlainSerializer(lambda value: "inf" if value == math.inf else value),  # JSON has no infinity
        Field(description=allowed.words.replace("None", "null")),
    ]


Norm = _field(options.NORM)
Layers = _field(options.LAYERS)
Positive = Annotated[float, Field(gt=0, description="a number > 0")]
NonNegative = Annotated[float, Field(ge=0, description="a number >= 0")]
Count = Annotated[int, Field(ge=1, description="a whole number >= 1")]
CountOrNull = Annotated[int | None, Field(ge=1, description="a whole number >= 1, or null")]
Whole = Annotated[int, Field(ge=0, description="a whole number >= 0")]
Fraction = Annotated[float, Field(gt=0, le=1, description="a number in (0, 1]")]
Unit = Annotated[float, Field(ge=0, le=1, description="a number in [0, 1]")]
Flag = Annotated[bool, Field(description="true or false")]
Name = Annotated[str, Field(min_length=1, description="a name")]
Accelerator = Literal["auto", "cpu", "gpu"]


class Node(BaseModel):
    """A part of the configuration: no unknown keys, no silent conversion, no change afterwards."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def node_of(declaration: Any) -> Any:
    """A node with the options of a class of `lmsweep.margin.options`; their values come from conf/."""
    fields: dict[str, Any] = {
        name: (_field(allowed), ...) for name, (_, allowed) in options.declared(declaration).items()
    }
    return create_model(declaration.__name__, __base__=Node, **fields)


class Component(Node):
    """An object of any importable class or function: `_target_` and its keyword arguments."""

    model_config = ConfigDict(extra="allow")

    target: Annotated[
        str, Field(alias="_target_", pattern=r"^\w+(\.\w+)+$", description="package.module.name")
    ]

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments that are not part of the schema."""
        return dict(self.model_extra or {})


Schema = type[BaseModel]
M = TypeVar("M", bound=BaseModel)


def checked(
    schema: type[M],
    content: Mapping[str, Any],
    group: str = "",
    where: str = "on the command line or in conf/",
) -> M:
    """`content` as its schema; ConfigError with one sentence about the first thing wrong.

    `group` is the key that has the content, empty for a whole configuration.
    """
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        raise ConfigError(invalid_value(schema, error.errors()[0], where, group)) from None


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


def invalid_value(schema: Schema, error: Mapping[str, Any], where: str, group: str = "") -> str:
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
    typed = json.dumps(error["input"]) if isinstance(error["input"], bool | None) else error["input"]
    problem = " is missing" if error["type"] == "missing" else f"={typed} is not allowed"
    allowed = _words(fields[-1]) if fields else "a group of keys"
    return f"{key}{problem}: it must be {allowed}; change it {where}."


def _words(field: FieldInfo) -> str:
    """What a field may be."""
    if field.description is None and get_origin(field.annotation) is Literal:
        return options.one_of(*get_args(field.annotation)).words
    return field.description or "a group of keys"


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
    if isinstance(error.__cause__, UserError):  # raised in the constructor of something that Hydra made
        return str(error.__cause__)
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
