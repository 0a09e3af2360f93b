"""Documents -> declarations: which kind a document is, and whether it satisfies that kind's model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import ValidationError

from model.kinds import (
    KINDS,
    Cluster,
    Declaration,
    Flavor,
    FleetPolicy,
    MigLayout,
    NodeOverlay,
    NodePool,
    PriorityClass,
    Queue,
    Team,
    Topology,
)
from model.kinds.base import FROM_YAML
from model.loader.envelope import is_mig_parted, kind_of
from model.loader.tree import Document, Path
from model.loader.violations import problems_of
from model.mig.parted import InvalidMigParted, read_mig_parted
from model.mig.reading import UnreadableConfig, layout_of
from model.problem import Code, Problem, Severity

if TYPE_CHECKING:
    from model.upstream.capacity import ResourceFlavor
    from model.upstream.capacity_buffer import CapacityBuffer, CorePodTemplate
    from model.upstream.cluster_queue import ClusterQueue
    from model.upstream.karpenter import AnyKarpenterNodePool, EC2NodeClass
    from model.upstream.tenancy import AdmissionCheck, Cohort, LocalQueue
    from model.upstream.volcano import VolcanoQueue

K_co = TypeVar("K_co", bound=Declaration, covariant=True)


@dataclass(frozen=True, slots=True)
class Declared(Generic[K_co]):
    """A declaration and the document it stands in."""

    value: K_co
    document: Document
    places: Mapping[Path, Path] = field(default_factory=dict)
    """Where the document says what the value says at a path, where that is elsewhere."""

    @property
    def place(self) -> str:
        """`file:line` of its name."""
        node = self.document.find_key(self._written(("metadata", "name")))
        return f"{(node.source or self.document.source).file}:{node.line}"

    def problem(
        self, path: Path, message: str, code: Code, *, hint: str = "", severity: Severity = "error", key: bool = False
    ) -> Problem:
        """A problem at `path` of the value, shown where the document says it."""
        return self.document.problem(self._written(path), message, code, hint=hint, severity=severity, key=key)

    def _written(self, path: Path) -> Path:
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]] + path[length:]
        return path


@dataclass(slots=True)
class Declarations:
    """Everything that satisfies its kind, by kind and key, and the names of what does not.

    Upstream manifests stand here as what they are read into (`model.upstream.READINGS`); `model.loader.joining` makes
    NodePools of `karpenter_pools` and `node_classes`.
    """

    node_pools: dict[str, Declared[NodePool]] = field(default_factory=dict)
    karpenter_pools: "dict[str, Declared[AnyKarpenterNodePool]]" = field(default_factory=dict)
    node_classes: "dict[str, Declared[EC2NodeClass]]" = field(default_factory=dict)
    node_overlays: dict[str, Declared[NodeOverlay]] = field(default_factory=dict)
    mig_layouts: dict[str, Declared[MigLayout]] = field(default_factory=dict)
    flavors: dict[str, Declared[Flavor]] = field(default_factory=dict)
    teams: dict[str, Declared[Team]] = field(default_factory=dict)
    queues: dict[str, Declared[Queue]] = field(default_factory=dict)
    priority_classes: dict[str, Declared[PriorityClass]] = field(default_factory=dict)
    topologies: dict[str, Declared[Topology]] = field(default_factory=dict)
    policies: dict[str, Declared[FleetPolicy]] = field(default_factory=dict)
    cluster_queues: "dict[str, Declared[ClusterQueue]]" = field(default_factory=dict)
    cohorts: "dict[str, Declared[Cohort]]" = field(default_factory=dict)
    local_queues: "dict[str, Declared[LocalQueue]]" = field(default_factory=dict)
    resource_flavors: "dict[str, Declared[ResourceFlavor]]" = field(default_factory=dict)
    admission_checks: "dict[str, Declared[AdmissionCheck]]" = field(default_factory=dict)
    volcano_queues: "dict[str, Declared[VolcanoQueue]]" = field(default_factory=dict)
    capacity_buffers: "dict[str, Declared[CapacityBuffer]]" = field(default_factory=dict)
    pod_templates: "dict[str, Declared[CorePodTemplate]]" = field(default_factory=dict)
    cluster: Declared[Cluster] | None = None
    """The cluster that all of this is for, where the repository holds several."""
    digest: str = ""
    """Of the files that are read for it."""
    removed: Sequence[Document] = ()
    """What patches have removed."""
    stopped: bool = False
    """The rest is not read: together it is too large."""
    broken: set[tuple[str, str]] = field(default_factory=set)
    """(kind, name) of declarations with errors of their own: a reference to one is not dangling."""
    complete: bool = True
    """Every file could be read to its end, so that what is not here is nowhere."""

    def table(self, kind: type[Declaration] | str) -> dict[str, Declared[Any]]:
        """The declarations of one kind."""
        name = kind if isinstance(kind, str) else kind.__name__
        tables: dict[str, dict[str, Declared[Any]]] = {
            "NodePool": self.node_pools,
            "KarpenterNodePool": self.karpenter_pools,
            "KarpenterNodePoolV1Beta1": self.karpenter_pools,
            "EC2NodeClass": self.node_classes,
            "NodeOverlay": self.node_overlays,
            "MigLayout": self.mig_layouts,
            "Flavor": self.flavors,
            "Team": self.teams,
            "Queue": self.queues,
            "PriorityClass": self.priority_classes,
            "Topology": self.topologies,
            "FleetPolicy": self.policies,
            "ClusterQueue": self.cluster_queues,
            "Cohort": self.cohorts,
            "LocalQueue": self.local_queues,
            "ResourceFlavor": self.resource_flavors,
            "AdmissionCheck": self.admission_checks,
            "VolcanoQueue": self.volcano_queues,
            "CapacityBuffer": self.capacity_buffers,
            "CorePodTemplate": self.pod_templates,
        }
        return tables[name]

    def add(self, document: Document) -> Iterator[Problem]:
        """Reads one document; yields what is wrong with it."""
        if is_mig_parted(document):
            yield from self._add_mig_parted(document)
            return
        kind = kind_of(document)
        if not isinstance(kind, type):
            yield from kind
            return
        if kind is Cluster:
            hint = "move it into a file cluster.yaml of its own, in the folder of the cluster"
            yield document.problem(("kind",), "a Cluster stands alone in its file", Code.MISPLACED, hint=hint)
            return
        try:
            value = kind.model_validate(document.root.data, context=FROM_YAML, by_alias=True, by_name=False)
        except ValidationError as error:
            yield from problems_of(document, kind, error)
            if (name := _name(document)) is not None:
                self.broken.add((read_into(kind).__name__, name))
        else:
            yield from self.keep(Declared(_read(value), document))

    def _add_mig_parted(self, document: Document) -> Iterator[Problem]:
        """Reads each configuration of a mig-parted file as a layout."""
        try:
            configs = read_mig_parted(document.root.data)
        except InvalidMigParted as error:
            hint = "mig-parted refuses this file as a whole"
            yield document.problem(error.path, error.message, Code.INVALID_VALUE, hint=hint)
            return
        for name, entries in configs.items():
            place: Path = ("mig-configs", name)
            try:
                layout = layout_of(name, entries)
            except UnreadableConfig as error:
                where = place if error.entry is None else (*place, error.entry)
                key = error.entry is None
                yield document.problem(where, error.message, Code.UNSUPPORTED, hint=error.hint, key=key)
                self.broken.add(("MigLayout", name))
            else:
                if layout is not None:
                    yield from self.keep(Declared(layout, document, {("metadata", "name"): place, ("spec",): place}))

    def keep(self, declared: Declared[Any]) -> Iterator[Problem]:
        """Puts a declaration into its table; yields a problem where its name is taken."""
        kind, key = type(declared.value).__name__, declared.value.key
        table = self.table(kind)
        if key in table:
            kind = declared.value.kind
            message = f"{kind} {key!r} is declared twice; the other one is at {table[key].place}"
            yield declared.problem(("metadata", "name"), message, Code.DUPLICATE_NAME)
        else:
            table[key] = declared


def read_into(kind: type[Declaration]) -> type[Declaration]:
    """The class of the value that a form becomes."""
    if kind in KINDS:
        return kind
    from model.upstream import manifests

    return manifests.read_into(kind)


def _read(value: Declaration) -> Declaration:
    """The value that a manifest becomes; what is ours is itself."""
    if type(value) in KINDS:
        return value
    from model.upstream import manifests

    return manifests.read(value)


def _name(document: Document) -> str | None:
    name = document.find(("metadata", "name")).data
    return name if isinstance(name, str) else None
