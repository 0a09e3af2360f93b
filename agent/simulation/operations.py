"""What the events of a history do to a simulated fleet; an event that finds nothing to act on does nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from agent.simulation.history import HistoryEvent
from agent.simulation.world import Simulation
from providers.sim.store import ApiError, PatchType

Obj = dict[str, Any]
T = TypeVar("T")


def act(sim: Simulation, event: HistoryEvent) -> bool:
    """Let the event happen; False where there was nothing for it, or the API refused it."""
    try:
        return OPERATIONS[event.kind](sim, event) is not False
    except ApiError:
        return False


def _picked(candidates: Sequence[T], pick: float) -> T | None:
    return candidates[int(pick * len(candidates))] if candidates else None


def _push(sim: Simulation, event: HistoryEvent) -> None:
    sim.push({"fleet.yaml": event.args["text"]})


def _submit(sim: Simulation, event: HistoryEvent) -> None:
    sim.submit(event.args["manifest"])


def _work(sim: Simulation) -> list[Obj]:
    owned = [it for kind in ("Job", "JobSet") for it in sim.objects(kind)]
    return [it for it in owned if not it["metadata"].get("ownerReferences")]


def _delete_job(sim: Simulation, event: HistoryEvent) -> bool:
    found = _picked(_work(sim), event.pick)
    if found is not None:
        sim.delete(found)
    return found is not None


def _scale_job(sim: Simulation, event: HistoryEvent) -> bool:
    jobs = [it for it in sim.objects("Job") if not it["metadata"].get("ownerReferences")]
    found = _picked(jobs, event.pick)
    if found is not None:
        _patch(sim, found, {"spec": {"parallelism": event.args["pods"]}})
    return found is not None


def _patch(sim: Simulation, obj: Obj, patch: Obj) -> None:
    meta = obj["metadata"]
    resource = sim.store.resource(obj["kind"], obj["apiVersion"].rpartition("/")[0])
    sim.store.patch(resource, meta["name"], patch, PatchType.MERGE, namespace=meta.get("namespace", ""))


OPERATIONS: Final[Mapping[str, Callable[[Simulation, HistoryEvent], bool | None]]] = {
    "push": _push,
    "submit": _submit,
    "delete_job": _delete_job,
    "scale_job": _scale_job,
}
"""Name -> what it does; returns False where it found nothing to do it to."""
