"""One world and one pending pod: which nodes the simulated scheduler finds feasible, where it goes, what it says."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from providers.clock import VirtualClock
from providers.sim.controllers.filters.volumes import SELECTED_NODE
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import annotations_of, condition_of, node_of
from providers.sim.controllers.persistent_volumes import VolumeController
from providers.sim.controllers.scheduler import Scheduler
from providers.sim.store import ApiError, Store
from tests.conformance.cases import Case, Result

Obj = dict[str, Any]
ANSWERS = frozenset({"feasible", "why", "bound", "reason", "message", "selectedOnly", "refused"})
DECLINED: Mapping[str, str] = {}
_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_ROUNDS = 10
_PROBED = "pod affinity terms conflict"
"""What the recorder's way to find out about one node made of a pod that lists nodes by name; see the README there."""


def run(case: Case) -> Obj:
    """What the scheduler finds and does, in the words of the row."""
    world = RecordedWorld()
    world.fill(case)
    try:
        pod = world.create("Pod", case["pod"])
    except ApiError as error:
        return {"refused": {"status": error.code, "message": error.message}}
    return world.schedule(pod)


def same(case: Case, got: object) -> bool:
    """The same nodes are feasible and the pod goes to one of them (ties are random), or the same refusal."""
    if not isinstance(got, dict):
        return False
    if "refused" in case or "refused" in got:
        return bool(case.get("refused") == got.get("refused"))
    landed = got["bound"] is None if case["bound"] is None else got["bound"] in case["feasible"]
    waits = bool(case.get("selectedOnly")) == got["selectedOnly"]
    return bool(sorted(case["feasible"]) == got["feasible"] and landed and waits and case["reason"] == got["reason"])


def says_the_same(case: Case, got: Obj) -> bool:
    """The very message of PodScheduled=False."""
    return bool(case.get("message") == got.get("message"))


def knows_why(case: Case, got: Obj) -> bool:
    """The same reason for every node that will not do."""
    wanted = {node: sorted(text.split("; ")) for node, text in case["why"].items() if text != _PROBED}
    found = {node: sorted(reasons) for node, reasons in got["why"].items()}
    return all(_alike(found.get(node, []), reasons) for node, reasons in wanted.items())


def _alike(found: Sequence[str], wanted: Sequence[str]) -> bool:
    """One recorded reason lacks the word that all others have."""
    return [text.removeprefix("node(s) ") for text in found] == [text.removeprefix("node(s) ") for text in wanted]


def table(results: Sequence[Result]) -> list[str]:
    """A line a family; messages and reasons are counted apart from passed."""
    columns = ("passed", "failed", "declined", "messages", "reasons")
    counts: dict[str, Counter[str]] = {}
    for result in results:
        counts.setdefault(result.id.partition("-")[0], Counter()).update(_marks(result))
    total: Counter[str] = sum(counts.values(), Counter())
    lines = [f"{'family':<9}" + "".join(f"{column:>12}" for column in columns)]
    for name, count in [*counts.items(), ("all", total)]:
        shown = [str(count[column]) for column in columns[:3]]
        shown += [f"{count[column]}/{count['of ' + column]}" for column in columns[3:]]
        lines.append(f"{name:<9}" + "".join(f"{cell:>12}" for cell in shown))
    return lines


def _marks(result: Result) -> Counter[str]:
    case, got = result.case or {}, result.got
    marks = Counter({"declined" if result.id in DECLINED else "passed" if result.passed else "failed": 1})
    if isinstance(got, dict) and "refused" not in got:
        if case.get("message"):
            marks.update({"of messages": 1, "messages": int(says_the_same(case, got))})
        if case.get("why"):
            marks.update({"of reasons": 1, "reasons": int(knows_why(case, got))})
    return marks


class RecordedWorld:
    """An API server with the controllers that the recorded one had, as far as they decide about a place."""

    def __init__(self) -> None:
        self._clock = VirtualClock()
        self.store = Store(self._clock)
        self._cluster = MirroredCluster(self.store)
        self._volumes = VolumeController(self._cluster, provisioners=frozenset())
        self._scheduler = Scheduler(self._cluster)

    def create(self, kind: str, obj: Obj) -> Obj:
        resource = self.store.resource(kind)
        return self.store.create(resource, obj, namespace=obj["metadata"].get("namespace") or "")

    def fill(self, case: Case) -> None:
        """Everything but the pod in question, as the README of the rows says it was put there."""
        for name, labels in case["namespaces"].items():
            self._namespace(name, labels)
        for name, given in (case.get("runtimeClasses") or {}).items():
            rest = {key: value for key, value in given.items() if key != "overhead"}
            overhead = {"overhead": {"podFixed": given["overhead"]}} if "overhead" in given else {}
            self.create("RuntimeClass", {"metadata": {"name": name}, "handler": name, **rest, **overhead})
        for field, objects in (case.get("volumes") or {}).items():
            for obj in objects:
                self.create(field[0].upper() + field[1:].rstrip("s").replace("sse", "ss"), obj)
        for node in case["nodes"]:
            cordon = [_CORDON] if node["spec"].get("unschedulable") else []
            taints = [*(node["spec"].get("taints") or ()), *cordon]
            self.create("Node", {**node, "spec": {**node["spec"], "taints": taints}})
        for pod in case["pods"]:
            self._bound(pod)
        self.settle_volumes()

    def _namespace(self, name: str, labels: Mapping[str, str]) -> None:
        resource = self.store.resource("Namespace")
        given = {"metadata": {"name": name, "labels": dict(labels)}}
        if name != "default":
            self.store.create(resource, given)
            return
        held = self.store.get(resource, name)
        metadata = {**held["metadata"], "labels": {**held["metadata"]["labels"], **labels}}
        self.store.update(resource, {**held, "metadata": metadata})

    def _bound(self, pod: Obj) -> None:
        resource = self.store.resource("Pod")
        held = self.create("Pod", {key: pod[key] for key in ("metadata", "spec")})
        namespace, name = held["metadata"]["namespace"], held["metadata"]["name"]
        phase = (pod.get("status") or {}).get("phase")
        if phase:
            status = {**held["status"], "phase": phase}
            self.store.update(resource, {**held, "status": status}, namespace=namespace, subresource="status")
        if pod.get("terminating"):
            self.store.delete(resource, name, namespace=namespace)

    def schedule(self, pod: Obj) -> Obj:
        """Ask the filters, then let the scheduler act until nothing moves."""
        self.settle_volumes()
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self._cluster.sync()
        found = self._scheduler.diagnosis(pod)
        for _ in range(_ROUNDS):
            before = self.store.resource_version
            self._scheduler.step(self._clock.now())
            self.settle_volumes()
            if self.store.resource_version == before:
                break
        pod = self.store.get(self.store.resource("Pod"), name, namespace)
        selected = None if node_of(pod) else self._selected_node(namespace)
        said = condition_of(pod, "PodScheduled") or {}
        refused = said.get("status") == "False"
        return {
            "feasible": list(found.feasible),
            "why": {node: list(refusal.reasons) for node, refusal in found.refusals.items()},
            "bound": node_of(pod) or selected,
            "selectedOnly": selected is not None,
            "reason": said.get("reason") if refused else None,
            "message": said.get("message") if refused else None,
        }

    def bind(self, pod: Obj, node: str) -> Sequence[str]:
        """Put a pod on a node where the filters let it; else the reasons why not."""
        self._cluster.sync()
        found = self._scheduler.diagnosis(pod)
        if node not in found.feasible:
            return found.refusals[node].reasons if node in found.refusals else ["no such node"]
        self._bound({**pod, "spec": {**pod["spec"], "nodeName": node}})
        return ()

    def settle_volumes(self) -> None:
        for _ in range(_ROUNDS):
            before = self.store.resource_version
            self._volumes.step(self._clock.now())
            if self.store.resource_version == before:
                return

    def _selected_node(self, namespace: str) -> str | None:
        claims = self.store.list(self.store.resource("PersistentVolumeClaim"), namespace)
        return next((node for claim in claims if (node := annotations_of(claim).get(SELECTED_NODE))), None)
