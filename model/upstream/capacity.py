"""`ResourceFlavor` and `Topology` of Kueue: what quotas are counted in, and where nodes stand.

All served versions write these alike.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from model.kinds import API_VERSION, NodePool, Taint, Toleration, Topology
from model.kinds.base import LabelKey, Labels, Spec
from model.kinds.capacity import TopologySpec
from model.kinds.errors import misplaced
from model.labels import normalize
from model.pools import pool_requirements
from model.upstream.base import KueueVersion, Subdomain, UpstreamKind, own_metadata


class FlavorTaint(Taint):
    """A taint that nodes of the flavor carry."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType({"timeAdded": "remove it: it belongs to nodes"})


class FlavorToleration(Toleration):
    """A toleration that pods are given, with the rules of the API server."""

    @model_validator(mode="after")
    def _as_the_api_server_takes_it(self) -> Self:
        if not self.key and self.operator != "Exists":
            raise misplaced(("operator",), "must be Exists where there is no key")
        if self.value and self.operator == "Exists":
            raise misplaced(("value",), "must be empty with the operator Exists")
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise misplaced(("tolerationSeconds",), "needs the effect NoExecute")
        return self


class ResourceFlavorSpec(Spec):
    """The nodes a flavor stands for."""

    node_labels: Annotated[Labels, Field(max_length=8)] = Field(default_factory=dict)
    """Nodes with all of these labels; none = every node. A NodePool belongs to it when all its machines carry them."""
    node_taints: Annotated[tuple[FlavorTaint, ...], Field(max_length=8)] = ()
    """What the nodes are tainted with; a workload must tolerate `NoSchedule` and `NoExecute` to get the flavor."""
    tolerations: Annotated[tuple[FlavorToleration, ...], Field(max_length=8)] = ()
    """Added to the pods of a workload that is admitted with this flavor; they count against `nodeTaints` too."""
    topology_name: Subdomain | None = None
    """The `Topology` within which workloads of this flavor may ask to stay together; needs `nodeLabels`."""

    @model_validator(mode="after")
    def _topology_of_some_nodes(self) -> Self:
        if self.topology_name is not None and not self.node_labels:
            raise misplaced(
                ("topologyName",), "needs at least one of nodeLabels, to tell which nodes have the topology"
            )
        return self


class ResourceFlavor(UpstreamKind):
    """A kind of capacity that quotas are counted in."""

    api_version: KueueVersion
    kind: Literal["ResourceFlavor"] = "ResourceFlavor"
    spec: ResourceFlavorSpec = ResourceFlavorSpec.unsaid()


def carried_labels(pool: NodePool) -> dict[str, str]:
    """The labels that every machine of the pool carries, with current names.

    Those of its template, `muster.dev/node-pool` and every other for which the pool leaves one value
    (`capacityTypes: [spot]` is `karpenter.sh/capacity-type: spot`). Raises `InvalidRequirement` for a malformed term (a
    loaded fleet has none).
    """
    return {key: allowed.only for key, allowed in pool_requirements(pool).items() if allowed.only is not None}


def wanted_labels(flavor: ResourceFlavor) -> dict[str, str]:
    """The flavor's `nodeLabels` with current names."""
    return {normalize(key): value for key, value in flavor.spec.node_labels.items()}


def pools_of(flavor: ResourceFlavor, pools: Iterable[NodePool]) -> tuple[NodePool, ...]:
    """The pools whose machines all carry the flavor's labels, heaviest first, then by name."""
    wanted = wanted_labels(flavor).items()
    found = [pool for pool in pools if wanted <= carried_labels(pool).items()]
    return tuple(sorted(found, key=lambda pool: (-pool.spec.weight, pool.name)))


class TopologyLevel(Spec):
    """One level."""

    node_label: LabelKey
    """Nodes with the same value stand in the same domain."""


class KueueTopologySpec(Spec):
    """Levels from the coarsest domain to the finest."""

    levels: Annotated[tuple[TopologyLevel, ...], Field(min_length=1, max_length=16)]
    """Coarsest first; `kubernetes.io/hostname` only as the last."""


class KueueTopology(UpstreamKind):
    """The levels (zone, block, rack, host) that workloads may ask to stay within; Kueue calls the kind `Topology`."""

    api_version: Literal["kueue.x-k8s.io/v1alpha1", "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"]
    kind: Literal["Topology"] = "Topology"
    spec: KueueTopologySpec


def topology(upstream: KueueTopology) -> Topology:
    """The same levels as our own kind says them."""
    return Topology.model_construct(
        api_version=API_VERSION,
        kind="Topology",
        metadata=own_metadata(upstream.metadata),
        spec=TopologySpec.model_construct(levels=tuple(level.node_label for level in upstream.spec.levels)),
    )
