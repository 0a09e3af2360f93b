"""Timelines of one Job: objects trimmed as the recorder did, and where two timelines differ.

Times are seconds since the Job was created. Trimmed objects say: a Job its suspension, parallelism, generation,
deletion, status; a pod its phase, finalizers, deletion, conditions, whether it has a node, and at its birth the rest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

Obj = dict[str, Any]
Event = Mapping[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"
TRACKING = "batch.kubernetes.io/job-tracking"
MACHINE_S = 0.2
"""0.1 s for the recorder's machine, and as much again for what its controllers' steps took one after the other."""
KUBELET_S = 0.35
"""How late the recorder's kubelet was at most."""
SECOND_S = 1
"""Stamps are whole seconds: two that are cut differ by one where nothing differs."""
_UIDS = ("controller-uid", "batch.kubernetes.io/controller-uid")


# -- trimming ---------------------------------------------------------------------------------------------------------


def trimmed_job(job: Obj) -> Obj:
    """What is recorded of a Job."""
    meta, spec = job["metadata"], job["spec"]
    status = dict(job.get("status") or {})
    born = meta["creationTimestamp"]
    for stamp in ("startTime", "completionTime"):
        if stamp in status:
            status[stamp] = f"+{_seconds_between(born, status[stamp])}s"
    if "conditions" in status:
        status["conditions"] = _conditions(status)
    if "uncountedTerminatedPods" in status:
        uncounted = status["uncountedTerminatedPods"] or {}
        status["uncountedTerminatedPods"] = {end: len(uids) for end, uids in uncounted.items() if uids}
    kept = {"suspend": spec["suspend"], "parallelism": spec["parallelism"], "generation": meta["generation"]}
    ending = {"finalizers": meta["finalizers"]} if meta.get("finalizers") else {}
    ending |= {"deleting": True} if "deletionTimestamp" in meta else {}
    return {**kept, "status": status, **ending}


def trimmed_pod(pod: Obj) -> Obj:
    """What is recorded of a pod at every change."""
    meta, conditions = pod["metadata"], _conditions(pod.get("status") or {})
    deleting = "deletionTimestamp" in meta
    return {
        "phase": pod["status"]["phase"],
        "finalizers": list(meta.get("finalizers") or ()),
        "deleting": deleting,
        **({"grace": meta.get("deletionGracePeriodSeconds")} if deleting else {}),
        **({"node": True} if pod["spec"].get("nodeName") else {}),
        **({"conditions": conditions} if conditions else {}),
    }


def birth_of(pod: Obj) -> Obj:
    """What is recorded of a pod when it appears."""
    meta, spec = pod["metadata"], pod["spec"]
    labels = {key: "<uid>" if key in _UIDS else value for key, value in meta["labels"].items()}
    owners = [{key: value for key, value in owner.items() if key != "uid"} for owner in meta["ownerReferences"]]
    env = spec["containers"][0].get("env")
    found = {
        "name": meta["generateName"] + "?????",
        "generateName": meta["generateName"],
        "labels": labels,
        "annotations": meta.get("annotations"),
        "hostname": spec.get("hostname"),
        "owner": owners,
        "env": env,
        "nodeSelector": spec.get("nodeSelector"),
        "schedulingGates": spec.get("schedulingGates"),
    }
    return {key: value for key, value in found.items() if value}


def _conditions(status: Obj) -> list[Obj]:
    kept = ("type", "status", "reason", "message")
    return [{key: c[key] for key in kept if c.get(key)} for c in status.get("conditions") or ()]


def _seconds_between(earlier: str, later: str) -> int:
    return int((datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())


# -- comparing --------------------------------------------------------------------------------------------------------


def differences(recorded: Sequence[Event], ours: Sequence[Event]) -> list[str]:
    """Where the second timeline is not the first: the Job's changes, each pod's, and the answers to the script."""
    end = recorded[-1]["t"]
    found = list(_unlike("job", _of(recorded, "job"), _of(ours, "job"), end))
    for pod in dict.fromkeys(event["pod"] for event in [*_of(recorded, "pod"), *_of(ours, "pod")]):
        theirs = [event for event in _of(recorded, "pod") if event["pod"] == pod]
        mine = [event for event in _of(ours, "pod") if event["pod"] == pod]
        found += _unlike(pod, theirs, mine, end)
    answers = [
        [(event["what"], event.get("code"), event.get("reason")) for event in _of(timeline, "do")]
        for timeline in (recorded, ours)
    ]
    found += [f"do {a} became {b}" for a, b in zip(*answers, strict=False) if a != b]
    return [*found, *_other_nodes(recorded, ours)]


def _of(timeline: Sequence[Event], kind: str) -> list[Event]:
    return [event for event in timeline if event["on"] == kind]


def _unlike(who: str, recorded: Sequence[Event], ours: Sequence[Event], end: float) -> Iterator[str]:
    """One object's changes, pairwise; more of them count only if they come before the end of the record."""
    for position, theirs in enumerate(recorded):
        if position >= len(ours):
            yield f"{who}: never {_text(theirs)}"
            return
        if not same_change(theirs, ours[position]):
            yield f"{who}: {_text(theirs)} became {_text(ours[position])}"
            return
    extra = [event for event in ours[len(recorded) :] if event["t"] < end - MACHINE_S]
    if extra:
        yield f"{who}: then came {_text(extra[0])}"


def same_change(recorded: Event, ours: Event) -> bool:
    """The same content, at the same time."""
    slack = KUBELET_S if _by_kubelet(recorded) else MACHINE_S
    return abs(recorded["t"] - ours["t"]) <= slack and _content(recorded) == _content(ours) and _stamps(recorded, ours)


def _by_kubelet(event: Event) -> bool:
    """A node, a phase, readiness: the recorder's kubelet wrote it, not a controller. Ends wait for it as well."""
    return event["ev"] == "DELETED" or (event["ev"] == "MODIFIED" and bool(event.get("node")))


def _content(event: Event) -> Obj:
    kept = _ranked({key: value for key, value in event.items() if key not in ("t", "pod")})
    if "status" in kept:
        rest = {key: value for key, value in kept["status"].items() if key not in ("startTime", "completionTime")}
        kept["status"] = _ranked(rest)
    return kept


def _ranked(holder: Obj) -> Obj:
    """With its conditions in the order of their types: it says nothing."""
    if "conditions" not in holder:
        return holder
    return {**holder, "conditions": sorted(holder["conditions"], key=lambda condition: str(condition["type"]))}


def _stamps(recorded: Event, ours: Event) -> bool:
    for stamp in ("startTime", "completionTime"):
        theirs, mine = (event.get("status", {}).get(stamp) for event in (recorded, ours))
        if (theirs is None) != (mine is None):
            return False
        if theirs is not None and abs(int(theirs[1:-1]) - int(mine[1:-1])) > SECOND_S:
            return False
    return True


def _other_nodes(recorded: Sequence[Event], ours: Sequence[Event]) -> Iterator[str]:
    """What a node looked like whenever the recorder looked at it."""
    for look in _of(recorded, "node"):
        seen = [e for e in _of(ours, "node") if e["node"] == look["node"] and e["t"] <= look["t"] + MACHINE_S]
        state = {key: seen[-1][key] for key in ("taints", "ready")} if seen else {}
        said = {key: look[key] for key in ("taints", "ready") if key in look}
        if any(sorted(map(str, said[key])) != sorted(map(str, state.get(key, ()))) for key in said):
            yield f"node {look['node']} at {look['t']}: {said} became {state}"


def _text(event: Event) -> str:
    return f"{event['t']:.2f} {_content(event)}"


# -- which pod is which ------------------------------------------------------------------------------------------------


class PodNames:
    """Which of our pods is the recorder's p1, p2, ...

    Pods made together are alike but for their index, and which of them the controller takes away is a tie. So a name is
    given when the script says it, to a pod that stands as the recorded one did then; what is left is named at the end.
    """

    def __init__(self, recorded: Sequence[Event]) -> None:
        self._recorded: dict[str, list[Event]] = {}
        for event in _of(recorded, "pod"):
            self._recorded.setdefault(event["pod"], []).append(event)
        self._ours: dict[str, list[Event]] = {}
        self._named: dict[str, str] = {}

    def note(self, uid: str, event: Event) -> None:
        """One more change of one of our pods."""
        self._ours.setdefault(uid, []).append(event)

    def uid(self, name: str, now: float) -> str | None:
        """Our pod for that name; None when there is none yet."""
        if name not in self._named:
            past = [event for event in self._recorded.get(name, ()) if event["t"] <= now + 0.01]
            like = self._free(name, lambda events: bool(past) and _content(events[-1]) == _content(past[-1]))
            uid = like or self._free(name, lambda _: True)
            if uid is None:
                return None
            self._named[name] = uid
        return self._named[name]

    def timeline(self) -> list[Event]:
        """All changes of our pods, by the recorder's names; pods it never had get names of their own."""
        for alike in (same_change, lambda a, b: _content(a) == _content(b), lambda _a, _b: True):
            for name in [name for name in self._recorded if name not in self._named]:
                self._name_like(name, alike)
        names = self.names()
        more = {uid: f"more{count}" for count, uid in enumerate(uid for uid in self._ours if uid not in names)}
        return [{**event, "pod": {**more, **names}[uid]} for uid, events in self._ours.items() for event in events]

    def names(self) -> dict[str, str]:
        """Uid -> the recorder's name, of those that have one."""
        return {uid: name for name, uid in self._named.items()}

    def _name_like(self, name: str, alike: Callable[[Event, Event], bool]) -> None:
        recorded = self._recorded[name]

        def fits(events: list[Event]) -> bool:
            return len(events) >= len(recorded) and all(map(alike, recorded, events))

        uid = self._free(name, fits) or self._free(name, lambda events: all(map(alike, recorded, events)))
        if uid is not None:
            self._named[name] = uid

    def _free(self, name: str, fits: Callable[[list[Event]], bool]) -> str | None:
        taken, index = set(self._named.values()), _index_of(self._recorded.get(name, ()))
        return next(
            (
                uid
                for uid, events in self._ours.items()
                if uid not in taken and _index_of(events) == index and fits(events)
            ),
            None,
        )


def _index_of(events: Sequence[Event]) -> str:
    return str((events[0].get("annotations") or {}).get(INDEX, "")) if events else ""
