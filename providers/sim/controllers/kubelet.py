"""The kubelets of all nodes: admit, start, run, restart and stop the pods bound to them.

How long a pod runs and how it ends is said by its annotations (`sim.muster.dev/...`, see `PodScript`); without them it
runs for ever. A pod that does not fit what is left on its node is rejected as the real kubelet does, so that a defect
of whoever bound it shows (kubelet `lifecycle/predicate.go`, `cm/devicemanager`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from providers.sim.controllers.dra.extended import resources_by_claim
from providers.sim.controllers.dra.preparing import ClaimPreparation
from providers.sim.controllers.eventlog import EventLog
from providers.sim.controllers.health import NodeHealth
from providers.sim.controllers.matching import selects
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.nodework import pods_by_node
from providers.sim.controllers.objects import (
    Key,
    Obj,
    annotations_of,
    being_deleted,
    instant,
    is_terminal,
    key_of,
    labels_of,
    node_of,
    status_of,
)
from providers.sim.controllers.occupancy import Occupancy, allocatable_of, shortages
from providers.sim.controllers.podstatus import over, rejected, running, starting, waiting
from providers.sim.controllers.runtime import Reconciler
from providers.sim.store.podrequests import Amounts, requests_of

RUN_SECONDS = "sim.muster.dev/run-seconds"
FAIL = "sim.muster.dev/fail"
EXIT_CODE = "sim.muster.dev/exit-code"
STOP_SECONDS = "sim.muster.dev/stop-seconds"

_KILLED = 137
_TERMINATED = 143


@dataclass(frozen=True, slots=True)
class PodScript:
    """What a pod's containers do.

    `run_s`: seconds until they exit (infinite without the annotation). `failures`: how many runs exit with `exit_code`
    before one exits with 0 (annotation `fail`: `"true"` = all of them, or a number). `stop_s`: how long they take to
    end after SIGTERM.
    """

    run_s: float = inf
    failures: float = 0
    exit_code: int = 1
    stop_s: float = 1.0

    @classmethod
    def of(cls, pod: Obj) -> "PodScript":
        """The script in a pod's annotations; what is not a number is as if absent."""
        notes = annotations_of(pod)
        fail = notes.get(FAIL, "")
        failures = inf if fail == "true" else _number(notes, FAIL, 0.0)
        if EXIT_CODE in notes and fail == "":
            failures = inf
        code = int(_number(notes, EXIT_CODE, 1.0))
        return cls(
            run_s=_number(notes, RUN_SECONDS, inf),
            failures=failures if code else 0,
            exit_code=code,
            stop_s=_number(notes, STOP_SECONDS, 1.0),
        )

    def code_of_run(self, run: int) -> int:
        """The exit code of the run with this number, the first being 0."""
        return self.exit_code if run < self.failures else 0


def _number(notes: Mapping[str, str], key: str, default: float) -> float:
    try:
        value = float(notes.get(key, default))
    except ValueError:
        return default
    return value if value >= 0 else default


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """`start_delay_s`: bound to running; `restart_*_s`: the crash loop's back-off.

    `prepare_again_s`: after claims could not be prepared.
    """

    start_delay_s: float = 2.0
    restart_base_s: float = 10.0
    restart_cap_s: float = 300.0
    prepare_again_s: float = 10.0


@dataclass(slots=True)
class _Run:
    """One admitted pod on its node."""

    script: PodScript
    starts_at: float
    restarts: int = 0
    stops_at: float | None = None
    deaths: int = 0
    prepared: bool = False
    """Whether the devices that the pod claims are there for it."""

    @property
    def ends_at(self) -> float:
        """When the container ends by itself."""
        return self.starts_at + self.script.run_s


class Kubelets(Reconciler[Key]):
    """All kubelets; keys are pods."""

    name = "kubelet"

    def __init__(
        self,
        cluster: MirroredCluster,
        health: NodeHealth,
        options: KubeletOptions | None = None,
        preparation: ClaimPreparation | None = None,
    ) -> None:
        super().__init__(cluster)
        self._preparation = preparation
        self._events = EventLog(cluster, "kubelet")
        self._options = options or KubeletOptions()
        self._health = health
        self._health_seen = health.version
        self._runs: dict[str, _Run] = {}
        self._occupancy = Occupancy()
        self._nodes = cluster.mirror("Node")
        self._pods = pods_by_node(cluster)
        self._nodes.watch(self._on_node)
        self._pods.watch(self._on_pod)

    def _on_node(self, old: Obj | None, new: Obj | None) -> None:
        if old is None and new is not None:  # it may be back, with pods that waited for it
            for pod in self._pods.by("node", new["metadata"]["name"]):
                self._queue.add(key_of(pod))

    def _on_pod(self, old: Obj | None, new: Obj | None) -> None:
        if new is None:
            self._forget((old or {})["metadata"]["uid"])
        elif node_of(new):
            self._queue.add(key_of(new))

    def step(self, now: float) -> float | None:
        """Step every pod that is due; all of them after a fault or a recovery of a node."""
        if self._health_seen != self._health.version:
            self._health_seen = self._health.version
            for pod in self._pods:
                if node_of(pod):
                    self._queue.add(key_of(pod))
        return super().step(now)

    def reconcile(self, key: Key, now: float) -> float | None:
        """Bring one pod a step on; returns when it has to be looked at again."""
        pod = self._pods.get(key)
        if pod is None or not node_of(pod) or not self._health.of(node_of(pod)).reports:
            return None
        node = self._nodes.get(("", node_of(pod)))
        if node is None:
            return None  # pod garbage collection takes what stays behind on a node that is gone
        if is_terminal(pod):
            self._forget(pod["metadata"]["uid"])
            return self._remove(pod)
        run = self._runs.get(pod["metadata"]["uid"])
        if being_deleted(pod):
            return self._stop(pod, run, now)
        if run is None:
            return self._admit(pod, node, now)
        return self._go_on(pod, run, now)

    def _begin(self, pod: Obj, starts_at: float, restarts: int = 0) -> _Run:
        uid, node = pod["metadata"]["uid"], node_of(pod)
        run = self._runs[uid] = _Run(PodScript.of(pod), starts_at, restarts, deaths=self._health.deaths(node))
        self._occupancy.hold(uid, node, requests_of(pod))
        return run

    def _was_killed(self, pod: Obj, run: _Run) -> bool:
        return run.deaths != self._health.deaths(node_of(pod))

    # Admission

    def _admit(self, pod: Obj, node: Obj, now: float) -> float | None:
        if status_of(pod).get("phase") == "Running":  # these controllers are new to a store that is not
            return self._go_on(pod, self._begin(pod, *_last_start(pod, now)), now)
        wanted, of_claims = requests_of(pod), resources_by_claim(pod)
        wanted = {name: it for name, it in wanted.items() if name not in of_claims} if of_claims else wanted
        refusal = self._refusal(pod, node, wanted)
        if refusal is not None:
            self._pods.update_status(pod, rejected(pod, *refusal, now))
            return None
        run = self._begin(pod, now + self._options.start_delay_s)
        if self._options.start_delay_s <= 0:
            return self._go_on(pod, run, now)
        self._pods.update_status(pod, starting(pod, now))
        return run.starts_at

    def _forget(self, uid: str) -> None:
        self._runs.pop(uid, None)
        self._events.forget(uid)
        self._occupancy.release(uid)

    def _refusal(self, pod: Obj, node: Obj, wanted: Amounts) -> tuple[str, str] | None:
        here = node["metadata"]["name"]
        if not selects(pod["spec"], labels_of(node), here):
            return "NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed"
        allocatable, used = allocatable_of(node), self._occupancy.used(here)
        short = shortages(wanted, allocatable, used)
        if not short:
            return None
        name, missing = short[0], short[0] not in allocatable
        asked, held, total = wanted[name], used.get(name, 0), allocatable.get(name, 0)
        if missing and "/" in name:
            devices = f"requested number of devices unavailable for {name}. Requested: {asked}, Available: 0"
            return (
                "UnexpectedAdmissionError",
                f"Pod was rejected: Allocate failed due to {devices}, which is unexpected",
            )
        numbers = f"requested: {asked}, used: {held}, capacity: {total}"
        return f"OutOf{name}", f"Pod was rejected: Node didn't have enough resource: {name}, {numbers}"

    # Running

    def _go_on(self, pod: Obj, run: _Run, now: float) -> float | None:
        if self._was_killed(pod, run):
            run.deaths = self._health.deaths(node_of(pod))
            return self._exited(pod, run, _KILLED, now)
        if now < run.starts_at:
            return run.starts_at
        if not run.prepared and self._preparation is not None:
            why = self._preparation.why_not(pod)
            if why is not None:
                return self._unprepared(pod, run, why, now)
        run.prepared = True
        if now >= run.ends_at:
            return self._exited(pod, run, run.script.code_of_run(run.restarts), run.ends_at, now)
        if not _is_running(pod, run.restarts):
            self._pods.update_status(pod, running(pod, run.starts_at, run.restarts, now))
        return run.ends_at if run.ends_at < inf else None

    def _unprepared(self, pod: Obj, run: _Run, why: str, now: float) -> float:
        """Its containers are not made before its claims are prepared; the kubelet tries again."""
        said = f"Failed to prepare dynamic resources: prepare dynamic resources: {why}"
        self._events.warning(pod, "FailedPrepareDynamicResources", said, now)
        if not status_of(pod).get("startTime"):
            self._pods.update_status(pod, starting(pod, now))
        run.starts_at = now + self._options.prepare_again_s
        return run.starts_at

    def _exited(self, pod: Obj, run: _Run, code: int, ended_at: float, now: float | None = None) -> float | None:
        instant_s = ended_at if now is None else now
        policy = pod["spec"].get("restartPolicy") or "Always"
        if policy == "Never" or (policy == "OnFailure" and code == 0):
            self._forget(pod["metadata"]["uid"])
            self._pods.update_status(pod, over(pod, run.starts_at, ended_at, code, run.restarts, instant_s))
            return None
        delay_s = min(self._options.restart_cap_s, self._options.restart_base_s * 2.0 ** min(run.restarts, 10))
        self._pods.update_status(pod, waiting(pod, run.starts_at, ended_at, code, run.restarts, instant_s))
        run.starts_at, run.restarts = instant_s + delay_s, run.restarts + 1
        return run.starts_at

    # Stopping

    def _stop(self, pod: Obj, run: _Run | None, now: float) -> float | None:
        """SIGTERM, then SIGKILL after the grace: the phase says how it ended, and only then does the object go."""
        if run is None:
            self._pods.update_status(pod, over(pod, now, now, _KILLED, 0, now))
            return now
        grace_s = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        killed = self._was_killed(pod, run)
        if run.stops_at is None or killed:
            run.stops_at = now if killed else now + run.script.stop_s
        run.stops_at = min(run.stops_at, now + grace_s)
        if now < run.stops_at:
            return run.stops_at
        code = _TERMINATED if run.script.stop_s <= grace_s and not killed else _KILLED
        self._forget(pod["metadata"]["uid"])
        self._pods.update_status(pod, over(pod, min(run.starts_at, now), now, code, run.restarts, now))
        return now

    def _remove(self, pod: Obj) -> float | None:
        if being_deleted(pod) and pod["metadata"].get("deletionGracePeriodSeconds") != 0:
            self._pods.delete(pod, grace_period_s=0)  # finalizers may still hold the object
        return None


def _last_start(pod: Obj, now: float) -> tuple[float, int]:
    """When the containers of a running pod started last, and after how many restarts."""
    containers = status_of(pod).get("containerStatuses") or ()
    started = [c["state"]["running"]["startedAt"] for c in containers if "running" in c["state"]]
    return (instant(started[0]) if started else now), max((c["restartCount"] for c in containers), default=0)


def _is_running(pod: Obj, restarts: int) -> bool:
    status = status_of(pod)
    if status.get("phase") != "Running":
        return False
    containers = status.get("containerStatuses") or ()
    return all("running" in c["state"] and c["restartCount"] == restarts for c in containers)
