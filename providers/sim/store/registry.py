"""Which resources are served: names, scope, subresources and what their discovery entries and tables show."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from providers.sim.store.listkeys import CustomShape

STANDARD_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column: a name, an OpenAPI type and a JSONPath; `priority` 0 shows without `-o wide`."""

    name: str
    type: str
    json_path: str
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class Resource:
    """One served resource. Two are equal when group and plural are; a changed custom definition replaces its entry."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    singular: str = field(default="", compare=False)
    short_names: tuple[str, ...] = field(default=(), compare=False)
    categories: tuple[str, ...] = field(default=(), compare=False)
    subresources: frozenset[str] = field(default=frozenset(), compare=False)
    columns: tuple[Column, ...] = field(default=(), compare=False)
    schema: dict[str, Any] | None = field(default=None, compare=False)
    custom: bool = field(default=False, compare=False)
    generations: bool = field(default=False, compare=False)
    selectable_fields: tuple[str, ...] = field(default=(), compare=False)
    scale_paths: tuple[str, str, str] | None = field(default=None, compare=False)
    key: str = field(init=False, compare=False)
    shape: CustomShape | None = field(init=False, compare=False, repr=False)
    """How the fields of a custom kind merge."""

    def __post_init__(self) -> None:
        """Name the resource once, as `plural.group` (`plural` alone in the core group)."""
        object.__setattr__(self, "key", f"{self.plural}.{self.group}" if self.group else self.plural)
        object.__setattr__(self, "shape", None if self.schema is None else CustomShape(self.schema))
        if not self.singular:
            object.__setattr__(self, "singular", self.kind.lower())

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def names(self) -> tuple[str, ...]:
        """Every word a user may say for it."""
        return (self.plural, self.singular, self.kind, self.kind.lower(), *self.short_names)


class Registry:
    """The served resources, found by any of their names; keeps the order in which they were added."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self._by_key: dict[str, Resource] = {}
        self._by_name: dict[tuple[str, str | None], Resource] = {}
        self._by_key |= {resource.key: resource for resource in resources}
        self._index()

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._by_key.values()))

    def add(self, resource: Resource) -> None:
        """Serve `resource`, in place of an earlier one of the same group and plural."""
        self._by_key[resource.key] = resource
        self._index()

    def remove(self, key: str) -> None:
        """Stop serving the resource named `plural.group`."""
        self._by_key.pop(key, None)
        self._index()

    def find(self, name: str, group: str | None = None) -> Resource:
        """The resource of that kind, plural, singular or short name; the first one added wins. KeyError if none."""
        return self._by_name[name, group]

    def known(self, key: str) -> Resource | None:
        """The resource named `plural.group`, or None."""
        return self._by_key.get(key)

    def served(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource behind `/apis/<group>/<version>/<plural>`."""
        resource = self._by_name.get((plural, group))
        return resource if resource and resource.version == version and resource.plural == plural else None

    def _index(self) -> None:
        names: dict[tuple[str, str | None], Resource] = {}
        for resource in self._by_key.values():
            for name in resource.names():
                names.setdefault((name, resource.group), resource)
                names.setdefault((name, None), resource)
        self._by_name = names
