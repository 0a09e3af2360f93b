"""A pod spec -> its `PodConstraints`, read alike from pods and from templates, and what of it cannot be read."""

from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Raw

from fleet.snapshot.constraints import EphemeralClaim, PodConstraints, PodHostPort, PodLabels, UnsupportedConstraint
from providers.kube.objects.affinities import AffinityAndSpread, affinity_and_spread
from providers.kube.objects.amounts import raw_bytes
from providers.kube.objects.pod_requests import ABSENT, PodResources
from providers.kube.objects.shapes import Wire

_ALL_ADDRESSES: Final = "0.0.0.0"  # noqa: S104 - a value of the API, nothing listens
_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
_NO_PORTS: Final[tuple[PodHostPort, ...]] = ()


class ConstrainedSpec(PodResources, frozen=True):
    """The fields of a pod spec that say what its pods ask of other pods, of ports and of volumes."""

    affinity: Raw = ABSENT
    topology_spread_constraints: Raw = ABSENT
    host_network: bool | None = None
    volumes: Raw = ABSENT

    @property
    def particular(self) -> bool:
        """Whether it has affinity or spread constraints at all: most pods do not, and there are many."""
        return self.affinity is not ABSENT or self.topology_spread_constraints is not ABSENT

    def affinity_and_spread(
        self, namespace: str, labels: PodLabels, late: frozenset[str] = frozenset()
    ) -> AffinityAndSpread:
        """What its affinity and its spread constraints ask (`affinity_and_spread`)."""
        return affinity_and_spread(
            namespace, raw_bytes(self.affinity), raw_bytes(self.topology_spread_constraints), labels, late
        )


class _ContainerPort(Wire, frozen=True):
    container_port: int = 0
    host_port: int | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


class _ClaimSource(Wire, frozen=True):
    claim_name: str = ""


class _EphemeralClaimSpec(Wire, frozen=True):
    storage_class_name: str | None = None
    selector: Raw = Raw()
    volume_name: str | None = None


class _ClaimMeta(Wire, frozen=True):
    annotations: dict[str, str] | None = None


class _EphemeralClaimTemplate(Wire, frozen=True):
    metadata: _ClaimMeta | None = None
    spec: _EphemeralClaimSpec = _EphemeralClaimSpec()


class _EphemeralSource(Wire, frozen=True):
    volume_claim_template: _EphemeralClaimTemplate | None = None


class _Volume(Wire, frozen=True):
    name: str = ""
    persistent_volume_claim: _ClaimSource | None = None
    ephemeral: _EphemeralSource | None = None


_ports = msgspec.json.Decoder(list[_ContainerPort])
_volumes = msgspec.json.Decoder(list[_Volume])


def constraints_of(spec: ConstrainedSpec, read: AffinityAndSpread) -> PodConstraints:
    """All that a pod of this spec asks; `read` is what its affinity and spread constraints ask."""
    ports, volumes = _host_ports(spec), bytes(spec.volumes)
    mounts = b'"persistentVolumeClaim"' in volumes or b'"ephemeral"' in volumes
    if not ports and not mounts:
        return read.constraints
    mounted = _volumes.decode(volumes) if mounts else []
    kept = read.constraints
    return PodConstraints(
        affinity=kept.affinity,
        anti_affinity=kept.anti_affinity,
        spread=kept.spread,
        host_ports=tuple(sorted(set(ports))),
        claims=tuple(sorted({it.persistent_volume_claim.claim_name for it in mounted if it.persistent_volume_claim})),
        ephemeral=tuple(sorted(_ephemeral(it.name, it.ephemeral) for it in mounted if it.ephemeral)),
        preferred_nodes=kept.preferred_nodes,
        preferred_pods=kept.preferred_pods,
    )


def _host_ports(spec: ConstrainedSpec) -> tuple[PodHostPort, ...]:
    """The ports of the node that containers and sidecars take; those of other init containers are not looked at.

    On the host's network every port is one of the node. Source: `pkg/scheduler/util` (GetHostPorts), `core/v1`
    (defaultHostNetworkPorts).
    """
    ports = _NO_PORTS
    for one in spec.containers or ():
        if one.ports is not ABSENT:
            ports += _ports_of(bytes(one.ports), host_network=bool(spec.host_network))
    for one in spec.init_containers or ():
        if one.restart_policy == "Always" and one.ports is not ABSENT:
            ports += _ports_of(bytes(one.ports), host_network=bool(spec.host_network))
    return ports


@lru_cache(maxsize=4096)
def _ports_of(text: bytes, *, host_network: bool) -> tuple[PodHostPort, ...]:
    found = [] if text == b"null" else _ports.decode(text)
    numbered = ((one, one.host_port or (one.container_port if host_network else 0)) for one in found)
    return tuple(
        PodHostPort(number, one.protocol or "TCP", "" if one.host_ip in (None, _ALL_ADDRESSES) else one.host_ip or "")
        for one, number in numbered
        if number
    )


def _ephemeral(name: str, source: _EphemeralSource) -> EphemeralClaim:
    template = source.volume_claim_template or _EphemeralClaimTemplate()
    noted = (template.metadata.annotations if template.metadata else None) or {}
    return EphemeralClaim(name, noted.get(_CLASS_ANNOTATION) or template.spec.storage_class_name or "")


def unreadable_volumes(spec: ConstrainedSpec) -> tuple[UnsupportedConstraint, ...]:
    """What claims made for a pod ask of volumes that exist already: such a volume may be anywhere."""
    volumes = raw_bytes(spec.volumes)
    if b'"ephemeral"' not in volumes:
        return ()
    found = []
    for n, one in enumerate(_volumes.decode(volumes)):
        template = one.ephemeral.volume_claim_template if one.ephemeral else None
        if template is None:
            continue
        path, asked = f"spec.volumes[{n}].ephemeral.volumeClaimTemplate.spec", template.spec
        if raw_bytes(asked.selector):
            found.append(UnsupportedConstraint(f"{path}.selector", "mount a claim that exists instead"))
        if asked.volume_name:
            found.append(UnsupportedConstraint(f"{path}.volumeName", "mount a claim that exists instead"))
        if asked.storage_class_name == "":
            words = "without a class only volumes that exist are taken; mount a claim that exists instead"
            found.append(UnsupportedConstraint(f"{path}.storageClassName", words))
    return tuple(found)
