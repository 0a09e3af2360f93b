"""`MigLayout`, `Flavor` and `Topology`: how GPUs are cut, what quotas are counted in, where nodes stand."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, Strict, model_validator

from model.kinds.base import Kind, LabelKey, Labels, Name, Spec, Toleration


class DeviceGroup(Spec):
    """Some GPUs of a machine and what each of them is cut into; no profiles = MIG off, the GPU stays whole."""

    devices: Literal["all"] | tuple[Annotated[int, Strict(), Field(ge=0, le=15)], ...] = "all"
    """Indexes of the GPUs on the machine, or all of them."""
    profiles: dict[str, Annotated[int, Strict(), Field(ge=1, le=16)]] = Field(default_factory=dict)
    """MIG profile name (`1g.10gb`, `1g.10gb+me`) -> count on each GPU of the group."""


class MigLayoutSpec(Spec):
    """For each GPU model, groups that together name every GPU once."""

    models: Annotated[dict[str, Annotated[tuple[DeviceGroup, ...], Field(min_length=1)]], Field(min_length=1)]
    """GPU model (`h100-80gb`, `a100-80gb`, ...) -> device groups that together name every GPU of the machine once."""


class MigLayout(Kind):
    """A way to cut the GPUs of a machine; compiles to a mig-parted configuration."""

    plural: ClassVar[str] = "miglayouts"

    kind: Literal["MigLayout"] = "MigLayout"
    spec: MigLayoutSpec


class FlavorSpec(Spec):
    """The nodes a flavor stands for: pools by name, or existing nodes by label."""

    node_pools: tuple[Name, ...] = ()
    """Pools whose nodes it stands for; heaviest first when machines are bought."""
    node_labels: Labels = Field(default_factory=dict)
    """Labels of existing nodes that nobody buys (a reservation, a machine of your own)."""
    tolerations: tuple[Toleration, ...] = ()
    """Added to the pods of a gang that is admitted with this flavor."""
    topology: Name | None = None
    """The `Topology` within which gangs of this flavor may ask to stay together."""

    @model_validator(mode="after")
    def _names_nodes(self) -> Self:
        if bool(self.node_pools) == bool(self.node_labels):
            raise ValueError("give exactly one of nodePools and nodeLabels")
        return self


class Flavor(Kind):
    """A kind of capacity that quotas are counted in. Every NodePool implies a flavor of its own name."""

    plural: ClassVar[str] = "flavors"

    kind: Literal["Flavor"] = "Flavor"
    spec: FlavorSpec


class TopologySpec(Spec):
    """Node labels from the coarsest domain to the finest."""

    levels: Annotated[tuple[LabelKey, ...], Field(min_length=1, max_length=16)]
    """Node label keys, coarsest first; the last one is usually `kubernetes.io/hostname`."""


class Topology(Kind):
    """The levels (zone, block, rack, host) that gangs may ask to stay within."""

    plural: ClassVar[str] = "topologies"

    kind: Literal["Topology"] = "Topology"
    spec: TopologySpec
