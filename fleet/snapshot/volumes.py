"""Defines volumes as far as they decide where pods may stand: claims, volumes, storage classes, attach limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fleet.snapshot.constraints import PodSelector
from model.kinds import RequirementTerm

NodeTerms = tuple[tuple[RequirementTerm, ...], ...]
"""Any one of the terms holds, each a conjunction; empty = every node."""


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A `VolumeClaim` is a PersistentVolumeClaim."""

    namespace: str
    name: str
    uid: str = ""
    storage_class: str = ""
    volume: str = ""
    """Name of its volume; empty until it has one."""
    bound: bool = False
    """Whether both know of each other (annotation `pv.kubernetes.io/bind-completed`)."""
    access_modes: frozenset[str] = frozenset()
    requested_bytes: int = 0
    volume_mode: str = "Filesystem"
    selector: PodSelector | None = None
    """Selects among volumes; None = any."""
    deleting: bool = False
    lost: bool = False
    """Whether the volume it had is gone (phase `Lost`)."""
    selected_node: str = ""
    """Node for which a provisioner was asked to make its volume."""

    @property
    def key(self) -> str:
        """Returns `namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """A `PersistentVolume` with the nodes it can be used on."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    storage_class: str = ""
    reaches: NodeTerms = ()
    """Nodes it can be used on (`spec.nodeAffinity.required`)."""
    access_modes: frozenset[str] = frozenset()
    capacity_bytes: int = 0
    volume_mode: str = "Filesystem"
    driver: str = ""
    """CSI driver that attaches it; empty = none counts it."""
    handle: str = ""
    """What the driver calls it: two volumes of one handle are attached once."""
    claim: str = ""
    """`namespace/name` of the claim it is reserved for."""
    claim_uid: str = ""
    available: bool = False
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A `StorageClass` says when claims of it get their volume, and where volumes can be made."""

    name: str
    provisioner: str = ""
    waits: bool = False
    """Whether a claim gets its volume only when a pod that uses it is placed (`WaitForFirstConsumer`)."""
    allowed: NodeTerms = ()
    """Where its volumes can be made (`allowedTopologies`)."""
    default: bool = False
    created_at_s: float = 0.0


class AttachLimits(NamedTuple):
    """`AttachLimits` are what CSI drivers say a node can attach (`CSINode`)."""

    node: str
    limits: Mapping[str, int]
    """CSI driver -> most volumes; drivers that state no limit are not in it."""


@dataclass(frozen=True, slots=True)
class Volumes:
    """`Volumes` are all that a snapshot knows of them. Nobody changes its mappings."""

    claims: Mapping[str, VolumeClaim] = field(default_factory=dict)
    """By `namespace/name`."""
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Node -> CSI driver -> most volumes it attaches there (`CSINode`)."""


NO_VOLUMES: Final = Volumes()
