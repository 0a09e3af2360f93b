"""Documents -> declarations: which kind a document is, and whether it satisfies that kind's model."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from model.hints import did_you_mean, listing
from model.kinds import (
    API_VERSION,
    KINDS,
    Flavor,
    FleetPolicy,
    Kind,
    MigLayout,
    NodePool,
    PriorityClass,
    Queue,
    Team,
    Topology,
)
from model.kinds.base import FROM_YAML
from model.loader.tree import Document, Path
from model.loader.violations import problems_of
from model.problem import Code, Problem, Severity

K_co = TypeVar("K_co", bound=Kind, covariant=True)
KINDS_BY_NAME: Mapping[str, type[Kind]] = {kind.__name__: kind for kind in KINDS}
_FOREIGN_GROUPS = (
    "kueue.x-k8s.io",
    "karpenter.sh",
    "karpenter.k8s.aws",
    "scheduling.volcano.sh",
    "batch.volcano.sh",
    "scheduling.x-k8s.io",
)


@dataclass(frozen=True, slots=True)
class Declared(Generic[K_co]):
    """A declaration and the document it stands in."""

    value: K_co
    document: Document

    @property
    def place(self) -> str:
        """`file:line` of its name."""
        node = self.document.find(("metadata", "name"))
        return f"{self.document.source.file}:{node.line}"

    def problem(
        self, path: Path, message: str, code: Code, *, hint: str = "", severity: Severity = "error", key: bool = False
    ) -> Problem:
        """A problem at `path` of the document."""
        return self.document.problem(path, message, code, hint=hint, severity=severity, key=key)


@dataclass(slots=True)
class Declarations:
    """Everything that satisfies its kind, by kind and name, and the names of what does not."""

    node_pools: dict[str, Declared[NodePool]] = field(default_factory=dict)
    mig_layouts: dict[str, Declared[MigLayout]] = field(default_factory=dict)
    flavors: dict[str, Declared[Flavor]] = field(default_factory=dict)
    teams: dict[str, Declared[Team]] = field(default_factory=dict)
    queues: dict[str, Declared[Queue]] = field(default_factory=dict)
    priority_classes: dict[str, Declared[PriorityClass]] = field(default_factory=dict)
    topologies: dict[str, Declared[Topology]] = field(default_factory=dict)
    policies: dict[str, Declared[FleetPolicy]] = field(default_factory=dict)
    broken: set[tuple[str, str]] = field(default_factory=set)
    """(kind, name) of declarations with errors of their own: a reference to one is not dangling."""
    complete: bool = True
    """Every file could be read to its end, so that what is not here is nowhere."""

    def table(self, kind: type[Kind] | str) -> dict[str, Declared[Any]]:
        """The declarations of one kind."""
        name = kind if isinstance(kind, str) else kind.__name__
        tables: dict[str, dict[str, Declared[Any]]] = {
            "NodePool": self.node_pools,
            "MigLayout": self.mig_layouts,
            "Flavor": self.flavors,
            "Team": self.teams,
            "Queue": self.queues,
            "PriorityClass": self.priority_classes,
            "Topology": self.topologies,
            "FleetPolicy": self.policies,
        }
        return tables[name]

    def add(self, document: Document) -> Iterator[Problem]:
        """Reads one document; yields what is wrong with it."""
        name, model = _name(document), None
        envelope = list(_envelope(document))
        if not envelope:
            model = KINDS_BY_NAME[document.root.data["kind"]]
            try:
                value = model.model_validate(document.root.data, context=FROM_YAML, by_alias=True, by_name=False)
            except ValidationError as error:
                envelope = problems_of(document, model, error)
            else:
                yield from self._keep(Declared(value, document))
                return
        yield from envelope
        if model is not None and name is not None:
            self.broken.add((model.__name__, name))

    def _keep(self, declared: Declared[Any]) -> Iterator[Problem]:
        kind, name = type(declared.value).__name__, declared.value.name
        table = self.table(kind)
        if name in table:
            message = f"{kind} {name!r} is declared twice; the other one is at {table[name].place}"
            yield declared.problem(("metadata", "name"), message, Code.DUPLICATE_NAME)
        else:
            table[name] = declared


def _name(document: Document) -> str | None:
    name = document.find(("metadata", "name")).data
    return name if isinstance(name, str) else None


def _envelope(document: Document) -> Iterator[Problem]:
    """What is wrong with `apiVersion` and `kind`, before anything else is looked at."""
    data = document.root.data
    api_version, kind = data.get("apiVersion"), data.get("kind")
    if "mig-configs" in data or str(api_version).split("/", maxsplit=1)[0].endswith(_FOREIGN_GROUPS):
        what = "a mig-parted configuration" if "mig-configs" in data else f"{api_version} {kind}"
        hint = f"{API_VERSION} has {listing(KINDS_BY_NAME)}"
        yield document.problem(("apiVersion",), f"{what} is not read yet", Code.NOT_READ_YET, hint=hint)
        return
    if api_version is None and kind is None:
        message = "this is no declaration: it has neither apiVersion nor kind"
        hint = "keep other files outside the fleet's folder"
        yield document.problem((), message, Code.NOT_A_DECLARATION, hint=hint)
        return
    if api_version is None:
        yield document.problem((), "the key 'apiVersion' is required", Code.MISSING_KEY, hint=f"write {API_VERSION}")
    elif api_version != API_VERSION:
        hint = f"write {API_VERSION}"
        yield document.problem(("apiVersion",), f"unknown apiVersion {api_version!r}", Code.UNKNOWN_KIND, hint=hint)
    if kind is None:
        hint = f"one of {listing(KINDS_BY_NAME)}"
        yield document.problem((), "the key 'kind' is required", Code.MISSING_KEY, hint=hint)
    elif not (isinstance(kind, str) and kind in KINDS_BY_NAME) and (api_version is None or api_version == API_VERSION):
        hint = did_you_mean(str(kind), KINDS_BY_NAME) or f"known are {listing(KINDS_BY_NAME)}"
        yield document.problem(("kind",), f"unknown kind {kind!r}", Code.UNKNOWN_KIND, hint=hint)
