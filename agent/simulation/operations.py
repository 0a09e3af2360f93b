"""What people do to a simulated fleet: they push, submit, scale, delete, drain and edit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from agent.simulation.history import HistoryEvent
from agent.simulation.world import Simulation
from providers.sim.store import ApiError, PatchType

Obj = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Effect:
    """What an event did: whom it touched (names of nodes, jobs, machines, claims), and how it is undone later."""

    subjects: tuple[str, ...] = ()
    undo: Callable[[], object] | None = None
    hinders: bool = False
    """Whether the agent cannot work as long as it lasts, so that nobody may wait for it."""


Operation = Callable[[Simulation, HistoryEvent], Effect | None]
"""Does it; None where it found nothing to do it to."""


def picked(candidates: Sequence[T], pick: float) -> T | None:
    """The candidate that a pick means; 1.0, to which a drawn pick may have been rounded, means the last."""
    return candidates[min(int(pick * len(candidates)), len(candidates) - 1)] if candidates else None


def name_of(obj: Obj) -> str:
    """The name of an object."""
    return str(obj["metadata"]["name"])


def patch(sim: Simulation, obj: Obj, changes: Obj) -> None:
    """A merge patch, as `kubectl edit` and `kubectl patch` make them."""
    resource = sim.store.resource(obj["kind"], obj["apiVersion"].rpartition("/")[0])
    sim.store.patch(resource, name_of(obj), changes, PatchType.MERGE, namespace=obj["metadata"].get("namespace", ""))


def try_to(action: Callable[[], object]) -> bool:
    """Whether the API let it happen."""
    try:
        action()
    except ApiError:
        return False
    return True


def _push(sim: Simulation, event: HistoryEvent) -> Effect:
    sim.push({"fleet.yaml": event.args["text"]})
    return Effect()


def _submit(sim: Simulation, event: HistoryEvent) -> Effect:
    return Effect((name_of(sim.submit(event.args["manifest"])),))


def _work(sim: Simulation, *kinds: str) -> list[Obj]:
    found = [it for kind in kinds or ("Job", "JobSet") for it in sim.objects(kind)]
    return [it for it in found if not it["metadata"].get("ownerReferences")]


def _delete_job(sim: Simulation, event: HistoryEvent) -> Effect | None:
    found = picked(_work(sim), event.pick)
    if found is None:
        return None
    sim.delete(found)
    return Effect((name_of(found),))


def _scale_job(sim: Simulation, event: HistoryEvent) -> Effect | None:
    found = picked(_work(sim, "Job"), event.pick)
    if found is None:
        return None
    patch(sim, found, {"spec": {"parallelism": event.args["pods"]}})
    return Effect((name_of(found),))


def _delete(kind: str) -> Operation:
    def delete(sim: Simulation, event: HistoryEvent) -> Effect | None:
        found = picked(sim.objects(kind), event.pick)
        if found is None:
            return None
        sim.delete(found)
        return Effect(_concerned(found))

    return delete


def _concerned(obj: Obj) -> tuple[str, ...]:
    """An object with the node behind a claim and the job behind a workload."""
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    job = (spec.get("job") or {}).get("name", "")
    owners = [owner["name"] for owner in obj["metadata"].get("ownerReferences") or ()]
    return tuple(name for name in (name_of(obj), status.get("node", ""), job, *owners) if name)


def _cordon(sim: Simulation, event: HistoryEvent) -> Effect | None:
    node = picked(sim.objects("Node"), event.pick)
    if node is None:
        return None
    patch(sim, node, {"spec": {"unschedulable": True}})
    return Effect((name_of(node),), lambda: _uncordon(sim, node))


def _uncordon(sim: Simulation, node: Obj) -> None:
    try_to(lambda: patch(sim, node, {"spec": {"unschedulable": None}}))


def _drain(sim: Simulation, event: HistoryEvent) -> Effect | None:
    """`kubectl drain`: cordon, then evict every pod; what a budget holds is asked for again by the person."""
    cordoned = _cordon(sim, event)
    if cordoned is None:
        return None
    name = cordoned.subjects[0]
    pods = [pod for pod in sim.objects("Pod") if pod["spec"].get("nodeName") == name]
    for pod in pods:
        try_to(lambda pod=pod: sim.store.evict(name_of(pod), pod["metadata"]["namespace"]))  # type: ignore[misc]
    owners = [name_of(owner) for pod in pods for owner in _owners(pod)]
    return Effect((name, *owners), cordoned.undo)


def _owners(obj: Obj) -> list[Obj]:
    return [{"metadata": owner} for owner in obj["metadata"].get("ownerReferences") or ()]


def _edit_job(sim: Simulation, event: HistoryEvent) -> Effect | None:
    found = picked(_work(sim), event.pick)
    if found is None:
        return None
    patch(sim, found, event.args["patch"])
    return Effect((name_of(found),))


def _edit_workload(sim: Simulation, event: HistoryEvent) -> Effect | None:
    found = picked(sim.objects("Workload"), event.pick)
    if found is None:
        return None
    patch(sim, found, {"spec": {"active": False}})
    return Effect(_concerned(found), lambda: try_to(lambda: patch(sim, found, {"spec": {"active": True}})))


def _edit_node(sim: Simulation, event: HistoryEvent) -> Effect | None:
    found = picked(sim.objects("Node"), event.pick)
    if found is None:
        return None
    patch(sim, found, event.args["patch"])
    return Effect((name_of(found),))


def _edit_claim(sim: Simulation, event: HistoryEvent) -> Effect | None:
    found = picked(sim.objects("NodeClaim"), event.pick)
    if found is None:
        return None
    done = try_to(lambda: patch(sim, found, event.args["patch"]))
    return Effect(_concerned(found)) if done else None


def _terminate_machine(sim: Simulation, event: HistoryEvent) -> Effect | None:
    """Somebody ends a machine in the console."""
    machine = picked(sim.machines(), event.pick)
    if machine is None:
        return None
    sim.cloud.terminate([machine.id])
    return Effect((machine.id, machine.private_dns))


PEOPLE: Final[Mapping[str, Operation]] = {
    "push": _push,
    "submit": _submit,
    "delete_job": _delete_job,
    "scale_job": _scale_job,
    "delete_node": _delete("Node"),
    "delete_claim": _delete("NodeClaim"),
    "delete_workload": _delete("Workload"),
    "delete_pod": _delete("Pod"),
    "cordon": _cordon,
    "drain": _drain,
    "edit_job": _edit_job,
    "edit_workload": _edit_workload,
    "edit_node": _edit_node,
    "edit_claim": _edit_claim,
    "terminate_machine": _terminate_machine,
}
"""What people do, by name."""
