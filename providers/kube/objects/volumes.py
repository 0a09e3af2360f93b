"""PersistentVolumeClaim, PersistentVolume, StorageClass and CSINode, as far as they decide where pods may stand.

There may be tens of thousands of claims: of each only the few fields are decoded that kube-scheduler looks at.
"""

from collections.abc import Iterable
from functools import lru_cache
from sys import intern
from typing import Final

import msgspec
from msgspec import Raw, field

from fleet.snapshot.constraints import PodSelector
from fleet.snapshot.volumes import AttachLimits, NodeTerms, PersistentVolume, StorageClass, VolumeClaim
from model.kinds import RequirementTerm
from model.quantity import canonical_resources
from providers.kube.objects.affinities import NOWHERE
from providers.kube.objects.amounts import raw_bytes
from providers.kube.objects.instants import instant_of
from providers.kube.objects.label_selectors import WireSelector, pod_selector
from providers.kube.objects.node_terms import WireNodeTerm, conjunction_of, requirement_of
from providers.kube.objects.shapes import Wire, interned

_STORAGE: Final = "storage"
_EBS: Final = "ebs.csi.aws.com"


class _VolumeNotes(Wire, frozen=True):
    storage_class: str = field(default="", name="volume.beta.kubernetes.io/storage-class")
    bind_completed: str | None = field(default=None, name="pv.kubernetes.io/bind-completed")
    selected_node: str = field(default="", name="volume.kubernetes.io/selected-node")
    default_class: str = field(default="", name="storageclass.kubernetes.io/is-default-class")
    beta_default_class: str = field(default="", name="storageclass.beta.kubernetes.io/is-default-class")


class _VolumeMeta(Wire, frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: _VolumeNotes | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    @property
    def notes(self) -> _VolumeNotes:
        """The annotations, never None."""
        return self.annotations or _NO_NOTES


class _Storage(Wire, frozen=True):
    storage: str | int = 0


class _StorageRequest(Wire, frozen=True):
    requests: _Storage | None = None


class _VolumeClaimSpec(Wire, frozen=True):
    storage_class_name: str | None = None
    volume_name: str | None = None
    access_modes: list[str] | None = None
    resources: _StorageRequest | None = None
    volume_mode: str | None = None
    selector: Raw = Raw()


class _VolumeClaim(Wire, frozen=True):
    metadata: _VolumeMeta
    spec: _VolumeClaimSpec = _VolumeClaimSpec()


class _CsiSource(Wire, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class _EbsSource(Wire, frozen=True):
    volume_id: str = field(default="", name="volumeID")


class _ClaimRef(Wire, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _VolumeReach(Wire, frozen=True):
    node_selector_terms: list[WireNodeTerm] | None = None


class _VolumeNodeAffinity(Wire, frozen=True):
    required: _VolumeReach | None = None


class _PersistentVolumeSpec(Wire, frozen=True):
    storage_class_name: str | None = None
    capacity: _Storage | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    node_affinity: _VolumeNodeAffinity | None = None
    claim_ref: _ClaimRef | None = None
    csi: _CsiSource | None = None
    aws_elastic_block_store: _EbsSource | None = None


class _VolumeStatus(Wire, frozen=True):
    phase: str | None = None


class _PersistentVolume(Wire, frozen=True):
    metadata: _VolumeMeta
    spec: _PersistentVolumeSpec = _PersistentVolumeSpec()
    status: _VolumeStatus = _VolumeStatus()


class _TopologyValues(Wire, frozen=True):
    key: str
    values: list[str] | None = None


class _TopologyTerm(Wire, frozen=True):
    match_label_expressions: list[_TopologyValues] | None = None


class _StorageClass(Wire, frozen=True):
    metadata: _VolumeMeta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[_TopologyTerm] | None = None


class _DriverLimit(Wire, frozen=True):
    count: int | None = None


class _CsiDriver(Wire, frozen=True):
    name: str
    allocatable: _DriverLimit | None = None


class _CsiNodeSpec(Wire, frozen=True):
    drivers: list[_CsiDriver] | None = None


class _CsiNode(Wire, frozen=True):
    metadata: _VolumeMeta
    spec: _CsiNodeSpec = _CsiNodeSpec()


_NO_NOTES: Final = _VolumeNotes()
_claims = msgspec.json.Decoder(_VolumeClaim)
_volumes = msgspec.json.Decoder(_PersistentVolume)
_classes = msgspec.json.Decoder(_StorageClass)
_csi_nodes = msgspec.json.Decoder(_CsiNode)
_selectors = msgspec.json.Decoder(WireSelector)


def decode_volume_claim(raw: bytes | Raw) -> VolumeClaim:
    """A claim. Its volume is its own once both know of each other."""
    found = _claims.decode(raw)
    meta, spec = found.metadata, found.spec
    return VolumeClaim(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        storage_class=intern(meta.notes.storage_class or spec.storage_class_name or ""),
        volume=spec.volume_name or "",
        bound=bool(spec.volume_name) and meta.notes.bind_completed is not None,
        access_modes=_modes(tuple(spec.access_modes or ())),
        requested_bytes=_bytes(spec.resources.requests if spec.resources else None),
        volume_mode=spec.volume_mode or "Filesystem",
        selector=_selector(raw_bytes(spec.selector)),
        deleting=meta.deletion_timestamp is not None,
        selected_node=meta.notes.selected_node,
    )


def decode_persistent_volume(raw: bytes | Raw) -> PersistentVolume:
    """A volume. One of the EBS driver that stands in the tree of Kubernetes counts as one of the driver outside."""
    found = _volumes.decode(raw)
    meta, spec, ref = found.metadata, found.spec, found.spec.claim_ref
    driver, handle = _attached(spec)
    return PersistentVolume(
        name=meta.name,
        labels=interned(meta.labels),
        storage_class=intern(meta.notes.storage_class or spec.storage_class_name or ""),
        reaches=_reaches(spec.node_affinity),
        access_modes=_modes(tuple(spec.access_modes or ())),
        capacity_bytes=_bytes(spec.capacity),
        volume_mode=spec.volume_mode or "Filesystem",
        driver=driver,
        handle=handle,
        claim=f"{ref.namespace}/{ref.name}" if ref else "",
        claim_uid=ref.uid if ref else "",
        available=found.status.phase == "Available",
        deleting=meta.deletion_timestamp is not None,
    )


def decode_storage_class(raw: bytes | Raw) -> StorageClass:
    """A class of volumes. An empty term of its topologies means no node (`core/v1` MatchTopologySelectorTerms)."""
    found = _classes.decode(raw)
    notes = found.metadata.notes
    return StorageClass(
        name=found.metadata.name,
        provisioner=found.provisioner,
        waits=found.volume_binding_mode == "WaitForFirstConsumer",
        allowed=_allowed(found.allowed_topologies or ()),
        default="true" in (notes.default_class, notes.beta_default_class),
        created_at_s=instant_of(found.metadata.creation_timestamp),
    )


def decode_csi_node(raw: bytes | Raw) -> AttachLimits:
    """What each driver that states a limit attaches to a node."""
    found = _csi_nodes.decode(raw)
    limits = {
        intern(one.name): one.allocatable.count
        for one in found.spec.drivers or ()
        if one.allocatable and one.allocatable.count is not None
    }
    return AttachLimits(found.metadata.name, limits)


def _attached(spec: _PersistentVolumeSpec) -> tuple[str, str]:
    if spec.csi:
        return intern(spec.csi.driver), spec.csi.volume_handle
    if spec.aws_elastic_block_store:
        return _EBS, spec.aws_elastic_block_store.volume_id.rpartition("/")[2]
    return "", ""


def _reaches(found: _VolumeNodeAffinity | None) -> NodeTerms:
    """A term that is empty or malformed matches no node."""
    if found is None or found.required is None:
        return ()
    terms = (_conjunction(term) for term in found.required.node_selector_terms or ())
    return tuple(term for term in terms if term) or (NOWHERE,)


def _conjunction(term: WireNodeTerm) -> tuple[RequirementTerm, ...]:
    try:
        return conjunction_of(term)
    except ValueError:
        return ()


def _allowed(found: Iterable[_TopologyTerm]) -> NodeTerms:
    terms = [
        tuple(requirement_of(one.key, "In", tuple(one.values or ())) for one in term.match_label_expressions or ())
        for term in found
    ]
    return tuple(term for term in terms if term) or ((NOWHERE,) if terms else ())


def _bytes(found: _Storage | None) -> int:
    return _amount(found.storage) if found else 0


@lru_cache(maxsize=1024)
def _amount(quantity: str | int) -> int:
    return canonical_resources({_STORAGE: quantity})[_STORAGE]


@lru_cache(maxsize=64)
def _modes(found: tuple[str, ...]) -> frozenset[str]:
    return frozenset(found)


@lru_cache(maxsize=1024)
def _selector(text: bytes) -> PodSelector | None:
    return pod_selector(_selectors.decode(text)) if text else None
