"""The parts most objects share, as msgspec Structs with only the fields that are read.

Go writes empty slices, maps and times as `null`: every field accepts it. What is not named here is skipped unparsed.
"""

from collections.abc import Iterable, Mapping
from sys import intern
from typing import Any, Final, TypeVar

from msgspec import Struct, field

JsonObject = dict[str, Any]
T = TypeVar("T")

EMPTY: Final[Mapping[str, str]] = {}


class Wire(Struct, frozen=True, gc=False, rename="camel"):
    """Base of what is read: camelCase on the wire, unknown fields skipped, invisible to the garbage collector."""


class Owner(Wire, frozen=True):
    """One owner reference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None

    @property
    def group(self) -> str:
        """The API group, empty for the core."""
        return self.api_version.rpartition("/")[0]


class WireMeta(Wire, frozen=True):
    """Metadata with whole label and annotation maps."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None


class WireCondition(Wire, frozen=True):
    """One status condition, of any API."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


class WireTaint(Wire, frozen=True):
    """One taint of a node."""

    key: str
    effect: str
    value: str | None = field(default=None)


def interned(labels: Mapping[str, str] | None) -> Mapping[str, str]:
    """The labels with shared strings: on 10,000 nodes the same few hundred come again and again."""
    return {intern(key): intern(value) for key, value in labels.items()} if labels else EMPTY


def first_of(found: Mapping[str, str] | None, *keys: str) -> str:
    """The first of `keys` that has a value that is not empty."""
    if not found:
        return ""
    return next((found[key] for key in keys if found.get(key)), "")


def holding(conditions: Iterable[WireCondition] | None, kind: str) -> WireCondition | None:
    """The condition of that type if its status is True."""
    for condition in conditions or ():
        if condition.type == kind and condition.status == "True":
            return condition
    return None


def set_fields(**fields: Any) -> JsonObject:
    """An object without the fields that say nothing: None, "", 0, False, empty lists and maps."""
    return {key: value for key, value in fields.items() if value}


def dig(raw: Any, *path: str) -> Any:
    """Returns the field at a path of plain JSON; None where a part of the path is missing."""
    for part in path:
        if raw is None:
            return None
        raw = raw.get(part)
    return raw
