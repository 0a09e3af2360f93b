"""Joins what is read of devices: templates of claims with their classes to what pods ask, slices and claims to nodes.

A device is counted as the resource that the device plugin would offer it as, so that quotas, bills and limits know no
other: `nvidia.com/gpu`, and `nvidia.com/mig-<profile>` where the selectors name the profile.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from fleet.snapshot.constraints import UnsupportedConstraint
from fleet.snapshot.devices import (
    CHANNEL_CLASS,
    GPU_CLASS,
    GPU_DRIVER,
    MIG_CLASS,
    NO_DEVICES,
    AllocatedDevice,
    ClusterDevices,
    CounterSet,
    Device,
    DeviceAllocation,
    DeviceAsk,
    DeviceClaim,
    DeviceTaintRule,
    MachineDevices,
    MatchAttribute,
    RequestedDevices,
    under_rules,
)
from fleet.snapshot.gangs import ClaimRef, PodSet
from fleet.snapshot.nodes import Node
from model.index import Index, derived, derived_each
from model.labels import DRA_PLUGIN, GPU_CLIQUE, GPU_RESOURCE, HOSTNAME, MIG_RESOURCE_PREFIX
from model.mig.geometry import resource_name
from model.quantity import Resources

_PROFILE: Final = re.compile(r"""profile\s*==\s*['"]([0-9a-z.+]+)['"]""")
_TYPE: Final = re.compile(r"""\.type\s*==\s*['"]([a-z]+)['"]""")


class PublishedDevices(NamedTuple):
    """`PublishedDevices` are one ResourceSlice: devices, counters, or both of a pool on one node."""

    name: str
    node: str
    """Empty where it is not of one node."""
    driver: str
    pool: str
    generation: int
    slices: int
    """How many slices of this generation make the pool complete."""
    devices: tuple[Device, ...] = ()
    counters: Mapping[CounterSet, Mapping[str, int]] = {}


class DeviceClass(NamedTuple):
    """A `DeviceClass` with its selectors, and why they are not honoured, if any is not."""

    name: str
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""
    """Name by which pods may ask for it without a claim."""
    unsupported: str = ""


class ClaimTemplate(NamedTuple):
    """A `ClaimTemplate` is a ResourceClaimTemplate: what each claim made of it asks; or a claim that pods share."""

    namespace: str
    name: str
    requests: tuple[RequestedDevices, ...] = ()
    """Without what their classes say."""
    constraints: tuple[MatchAttribute, ...] = ()
    unsupported: tuple[UnsupportedConstraint, ...] = ()
    """What is not honoured, with paths within the template."""
    root: str = "spec.spec"
    """Where in it the claim's own `spec` is."""

    @property
    def key(self) -> str:
        """Returns `namespace/name`."""
        return f"{self.namespace}/{self.name}"


class AllocatedClaim(NamedTuple):
    """An `AllocatedClaim` is a ResourceClaim, with what it was given and for whom."""

    namespace: str
    name: str
    pod: str = ""
    """Name of the pod it is reserved for, or was made for."""
    devices: tuple[AllocatedDevice, ...] = ()
    asks: ClaimTemplate | None = None
    """What it asks, where it was made for no pod alone."""

    @property
    def key(self) -> str:
        """Returns `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def pod_key(self) -> str:
        """Returns `namespace/name` of its pod; empty where it has none."""
        return f"{self.namespace}/{self.pod}" if self.pod else ""


# -- nodes ------------------------------------------------------------------------------------------------------------


_NO_RULES: Final[Mapping[str, DeviceTaintRule]] = {}


@derived(1)
def cluster_devices(
    index: Index,
    slices: Mapping[str, PublishedDevices],
    claims: Mapping[str, AllocatedClaim],
    rules: Mapping[str, DeviceTaintRule] = _NO_RULES,
) -> ClusterDevices:
    """Returns the devices of every node and what of them is allocated. A pool that is not complete is not there."""
    repelling = _repelling(index, rules)
    machines = _machines(slices)
    if repelling:
        machines = {node: under_rules(it, repelling) for node, it in machines.items()}
    if not machines and not repelling:
        return NO_DEVICES
    return ClusterDevices(machines, _allocated(machines, claims), repelling)


@derived(1, steady=True)
def _repelling(_index: Index, rules: Mapping[str, DeviceTaintRule]) -> tuple[DeviceTaintRule, ...]:
    return tuple(rules[name] for name in sorted(rules) if rules[name].taint is not None)


def _allocated(
    machines: Mapping[str, MachineDevices], claims: Mapping[str, AllocatedClaim]
) -> dict[str, tuple[DeviceAllocation, ...]]:
    """Returns node -> what is allocated of its devices, in order of the claims."""
    at = {device: node for node, found in machines.items() for device in found.by_id}
    allocated: dict[str, list[DeviceAllocation]] = {}
    for key, claim in sorted(claims.items()):
        for node in sorted({at[it.id] for it in claim.devices if it.id in at}):
            allocated.setdefault(node, []).append(DeviceAllocation(key, claim.pod_key, claim.devices))
    return {node: tuple(found) for node, found in sorted(allocated.items())}


def _machines(slices: Mapping[str, PublishedDevices]) -> dict[str, MachineDevices]:
    """Returns node -> its devices, pool by pool and slice by slice in order of their names."""
    pools: dict[tuple[str, str, str], list[PublishedDevices]] = {}
    for name in sorted(slices):
        found = slices[name]
        if found.node:
            pools.setdefault((found.node, found.driver, found.pool), []).append(found)
    devices: dict[str, list[Device]] = {}
    counters: dict[str, dict[CounterSet, Mapping[str, int]]] = {}
    for (node, _, _), parts in sorted(pools.items()):
        for part in _complete(parts):
            devices.setdefault(node, []).extend(part.devices)
            counters.setdefault(node, {}).update(part.counters)
    return {node: MachineDevices(tuple(found), counters.get(node, {})) for node, found in devices.items()}


def _complete(parts: Sequence[PublishedDevices]) -> list[PublishedDevices]:
    """Returns the slices of the latest generation of a pool; none while some of them are missing."""
    latest = max(part.generation for part in parts)
    current = [part for part in parts if part.generation == latest]
    return current if len(current) == max(part.slices for part in current) else []


def nodes_with_devices(index: Index, nodes: Mapping[str, Node], devices: ClusterDevices) -> Mapping[str, Node]:
    """Returns the nodes; what is allocatable on those of the DRA driver has their devices, as of a device plugin."""
    return _nodes_with(index, nodes, devices) if devices.machines else nodes


@derived(1, steady=True)
def _nodes_with(index: Index, nodes: Mapping[str, Node], devices: ClusterDevices) -> Mapping[str, Node]:
    table = {
        name: node for name, node in nodes.items() if name in devices.machines and node.labels.get(DRA_PLUGIN) == "true"
    }
    return {**nodes, **{name: _node_with(index, devices.machines[name], table, name) for name in table}}


@derived_each
def _node_with(devices: MachineDevices, node: Node) -> Node:
    return replace(node, allocatable={**node.allocatable, **devices.amounts})


@derived(1, steady=True)
def held_by_pods(_index: Index, devices: ClusterDevices) -> Mapping[str, Resources]:
    """Returns `namespace/name` of each pod with claimed devices -> what it has of them; a part counts as a device."""
    found: dict[str, Counter[str]] = {}
    for node, allocations in devices.allocated.items():
        known = devices.machines[node].by_id
        for each in allocations:
            if each.pod:
                counted = (known[it.id].resource for it in each.devices if it.id in known)
                found.setdefault(each.pod, Counter()).update(it for it in counted if it)
    return {pod: dict(amounts) for pod, amounts in sorted(found.items())}


# -- pods -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClaimableDevices:
    """`ClaimableDevices` are the templates and classes by which pods claim devices."""

    templates: Mapping[str, ClaimTemplate] = field(default_factory=dict)
    """By `namespace/name`."""
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)


NO_CLAIMS: Final = ClaimableDevices()
_SHARED_ELSE: Final = "one claim that several pods may share is honoured a pod; name a resourceClaimTemplateName"


def pods_with_claims(pods: PodSet, known: ClaimableDevices, shared: ClaimRef | None = None) -> PodSet:
    """Returns a pod set with its claims filled in and counted; what cannot be honoured is told with its path.

    `shared`: a claim that it shares with others and that is seen to apart (`fleet.snapshot.shared_claims`).
    """
    found: list[DeviceClaim] = []
    refused = [
        UnsupportedConstraint(f"{ref.path}.resourceClaimName", _SHARED_ELSE)
        for ref in pods.resource_claims
        if not ref.template and ref is not shared
    ]
    for ref in (it for it in pods.resource_claims if it.template):
        template = known.templates.get(f"{pods.namespace}/{ref.template}")
        if template is None:
            refused.append(_no_template(pods, ref, known))
        else:
            claim, problems = claim_of(ref, template, known)
            found.append(claim)
            refused += problems
    if (found or shared) and any(name.startswith((GPU_RESOURCE, MIG_RESOURCE_PREFIX)) for name in pods.requests):
        words = "a machine gives GPUs to claims or by name, not both: let the pod claim them too"
        refused.append(UnsupportedConstraint("spec.containers[*].resources", words))
    if refused:
        return replace(pods, unsupported=(*pods.unsupported, *refused))
    requests_of_pod = Counter(pods.requests)
    for claim in found:
        requests_of_pod.update(claim.amounts)
    constraints = replace(pods.constraints, devices=tuple(found))
    claiming = replace(pods, requests=dict(requests_of_pod), constraints=constraints)
    return _of_one_domain(claiming) if any(claim.joins for claim in found) else claiming


def without_undecided(pods: PodSet) -> PodSet:
    """Returns pods as machines are judged for them: what alternatives of several resources take their devices say.

    Quotas count the greatest amount of each, and no machine need have room for all of them.
    """
    left = Counter(pods.requests)
    for claim in pods.constraints.devices:
        left.subtract(claim.undecided)
    if left == pods.requests:
        return pods
    return replace(pods, requests={name: left[name] for name in pods.requests if left[name] > 0})


def _of_one_domain(pods: PodSet) -> PodSet:
    """Returns a pod set whose pods claim channels: all have to be of one NVLink domain.

    Unless it says a host, or how else they are split over NVLink domains: slices of so many, or as few as can be.
    """
    said = {pods.preferred_topology, *(layer.level for layer in pods.slices)}
    if pods.required_topology == HOSTNAME or GPU_CLIQUE in said:
        return pods
    return replace(pods, required_topology=GPU_CLIQUE)


def _no_template(pods: PodSet, ref: ClaimRef, known: ClaimableDevices) -> UnsupportedConstraint:
    words = f"there is no ResourceClaimTemplate {ref.template} in namespace {pods.namespace}"
    if not known.classes:
        words += "; the cluster shows no DeviceClass either: no driver serves claims of devices"
    return UnsupportedConstraint(f"{ref.path}.resourceClaimTemplateName", words)


def claim_of(
    ref: ClaimRef, template: ClaimTemplate, known: ClaimableDevices
) -> tuple[DeviceClaim, list[UnsupportedConstraint]]:
    """Returns a claim as a template has it, and what is not honoured: of the template, or else of its classes."""
    filled = [
        _filled_in(request, f"{template.root}.devices.requests[{n}]", known)
        for n, request in enumerate(template.requests)
    ]
    requests = tuple(request._replace(asks=asks) for request, (asks, _) in zip(template.requests, filled, strict=True))
    problems = template.unsupported or [it for _, found in filled for it in found]
    where = f"{ref.path}: {ref.kind} {template.name} "
    refused = [UnsupportedConstraint(where + it.path, it.words) for it in problems]
    return DeviceClaim(ref.name, requests, template.constraints, ref.claim), refused


def _filled_in(
    request: RequestedDevices, path: str, known: ClaimableDevices
) -> tuple[tuple[DeviceAsk, ...], list[UnsupportedConstraint]]:
    """Returns the ways to meet a request with what their classes say, and what of it is not honoured."""
    asks, problems = [], []
    for n, ask in enumerate(request.asks):
        found = _of_class(ask, known)
        if isinstance(found, UnsupportedConstraint):
            where = f"{path}.firstAvailable[{n}]" if "/" in ask.name else f"{path}.exactly"
            problems.append(UnsupportedConstraint(where + found.path, found.words))
        else:
            asks.append(found)
    return tuple(asks), problems


def _of_class(ask: DeviceAsk, known: ClaimableDevices) -> DeviceAsk | UnsupportedConstraint:
    """Returns a way to meet a request with what its class says, or why that is not honoured, with the path in it."""
    found = known.classes.get(ask.device_class)
    if found is None:
        return UnsupportedConstraint(".deviceClassName", f"there is no DeviceClass {ask.device_class}")
    if found.unsupported:
        return UnsupportedConstraint(".deviceClassName", found.unsupported)
    selectors = (*found.selectors, *ask.selectors)
    counted = _counted_as(found, selectors)
    if counted.words:
        return UnsupportedConstraint("", counted.words)
    return replace(ask, selectors=selectors, resource=counted.resource)


class _CountedAs(NamedTuple):
    resource: str = ""
    words: str = ""
    """Why nothing can be said."""


def _counted_as(found: DeviceClass, selectors: tuple[str, ...]) -> _CountedAs:
    """Returns what quotas count a device of a class as, by what its name and the selectors say."""
    if found.name == CHANNEL_CLASS:
        return _CountedAs()
    text = " ".join(selectors)
    profiles, kinds = set(_PROFILE.findall(text)), set(_TYPE.findall(text))
    if found.extended_resource.startswith((GPU_RESOURCE, MIG_RESOURCE_PREFIX)):
        return _CountedAs(found.extended_resource)
    if found.name == GPU_CLASS or kinds == {"gpu"}:
        return _CountedAs(GPU_RESOURCE)
    if found.name == MIG_CLASS or kinds == {"mig"}:
        return _slice_counted_as(profiles)
    words = f"no pool offers devices of class {found.name}: pools offer GPUs and MIG slices of {GPU_DRIVER}"
    return _CountedAs(words=words)


def _slice_counted_as(profiles: set[str]) -> _CountedAs:
    if len(profiles) == 1:
        return _CountedAs(resource_name(profiles.pop()))
    named = "names several" if profiles else "names none"
    words = f"a slice is counted by its profile, and the request {named}: say profile == '1g.10gb' in a selector"
    return _CountedAs(words=words)
