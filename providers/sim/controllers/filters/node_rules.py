"""What a node must be by itself: not cordoned, tolerated, selected, with enough left (and free host ports).

Source: the plugins NodeUnschedulable, TaintToleration, NodeAffinity, NodeResourcesFit and NodePorts.
"""

from collections.abc import Collection, Mapping
from typing import Any

from providers.sim.controllers.dra.extended import lacking
from providers.sim.controllers.filters.bound_pods import EVERYWHERE, HostPort, host_ports
from providers.sim.controllers.filters.state import (
    NodeCheck,
    NodeRefusal,
    SchedulingState,
    UnschedulablePodError,
)
from providers.sim.controllers.matching import selects, tolerates, untolerated
from providers.sim.controllers.objects import Obj
from providers.sim.controllers.occupancy import shortages
from providers.sim.controllers.scheduling import REPELLING, UNSCHEDULABLE, SchedulableNode
from providers.sim.store.podrequests import requests_of

_CORDONED = NodeRefusal(("node(s) were unschedulable",))
_TAINTED = NodeRefusal(("node(s) had untolerated taint(s)",))
_NOT_SELECTED = NodeRefusal(("node(s) didn't match Pod's node affinity/selector",))
_PORTS_TAKEN = NodeRefusal(("node(s) didn't have free ports for the requested pod ports",), final=False)
NOT_NAMED = NodeRefusal(("node(s) didn't satisfy plugin(s) [NodeAffinity]",))


def cordons(pod: Obj, _: SchedulingState) -> NodeCheck | None:
    """Cordoned nodes are for pods that tolerate the cordon."""
    if any(tolerates(toleration, UNSCHEDULABLE) for toleration in pod["spec"].get("tolerations") or ()):
        return None
    return lambda node: _CORDONED if node.cordoned else None


def taints(pod: Obj, _: SchedulingState) -> NodeCheck:
    """Every taint that keeps pods away must be tolerated."""
    spec = pod["spec"]
    return lambda node: _TAINTED if untolerated(spec, node.taints, REPELLING) else None


def node_affinity(pod: Obj, _: SchedulingState) -> NodeCheck | None:
    """The node selector and the required node affinity."""
    spec = pod["spec"]
    names = named_nodes(spec)
    if names is not None and not names:
        raise UnschedulablePodError("pod affinity terms conflict")
    if not spec.get("nodeSelector") and not (spec.get("affinity") or {}).get("nodeAffinity"):
        return None
    return lambda node: None if selects(spec, node.labels, node.name) else _NOT_SELECTED


def named_nodes(spec: Obj) -> frozenset[str] | None:
    """The nodes that the required node affinity lists by name; None unless each of its terms does."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms")
    if not terms:
        return None
    found: frozenset[str] = frozenset()
    for term in terms:
        names = _names_of(term)
        if names is None:
            return None
        found |= names
    return found


def _names_of(term: Mapping[str, Any]) -> frozenset[str] | None:
    names: frozenset[str] | None = None
    for field in term.get("matchFields") or ():
        if field["key"] == "metadata.name" and field["operator"] == "In":
            listed = frozenset(field.get("values") or ())
            names = listed if names is None else names & listed
    return names


def resources(pod: Obj, state: SchedulingState) -> NodeCheck:
    """What is left must be enough; more than a node has at all cannot be helped by evicting."""
    wanted = requests_of(pod)

    by_claim = state.devices.extended.keys() & wanted.keys() if state.devices is not None else ()

    def check(node: SchedulableNode) -> NodeRefusal | None:
        short = shortages(wanted, node.allocatable, state.occupancy.used(node.name))
        short = [name for name in short if name not in lacking(wanted, by_claim, node.allocatable)]
        if not short:
            return None
        reasons = tuple("Too many pods" if name == "pods" else f"Insufficient {name}" for name in short)
        beyond = any(name != "pods" and wanted[name] > node.allocatable.get(name, 0) for name in short)
        return NodeRefusal(reasons, final=beyond)

    return check


def ports(pod: Obj, state: SchedulingState) -> NodeCheck | None:
    """The host ports asked for must be free."""
    wanted = host_ports(pod["spec"])
    if not wanted:
        return None
    bound = state.bound
    return lambda node: _PORTS_TAKEN if _conflict(wanted, bound.ports_on(node.name)) else None


def _conflict(wanted: Collection[HostPort], taken: Collection[HostPort]) -> bool:
    """The same port and protocol clash on the same address, and on any if one of the two means all."""
    return any(
        (protocol, port) == (other_protocol, other_port) and (address == other or EVERYWHERE in (address, other))
        for address, protocol, port in wanted
        for other, other_protocol, other_port in taken
    )
