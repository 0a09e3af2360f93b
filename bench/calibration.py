"""How true estimates of starts are: a trace is replayed, gangs are told when they will start, and start when they do.

`python -m bench calibration`. Of each gang that waits the first estimate counts, made within eight hours after it came,
by what the agent would have learned until then: nothing of the future is known. The constants of forecast and
correction were chosen on the work of `chosen`; `held_out` is other virtual clusters, and nothing was chosen on it.
Without the trace (`TRACE_VARIABLE`) only what one forecast of a thousand machines takes is measured, and it says so.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from agent.cli.look import catalog_of
from agent.explanations import SHARE
from bench import replay
from fleet.explain.gang_facts import StartEstimate
from fleet.plan.forecast_correction import ForecastCorrection
from fleet.plan.past_arrivals import PastArrivals
from fleet.plan.start_forecast import FUTURES, StartForecaster
from fleet.replay.cluster_model import POD_STARTS_S
from fleet.replay.run_times import EndedRun, RunTimes
from fleet.replay.submissions import SubmittedGang
from fleet.replay.virtual_agent import VirtualAgent
from fleet.replay.virtual_run import at_home
from fleet.replay.virtual_world import VirtualWorld
from fleet.snapshot import Gang, GangState, Pod, Snapshot
from model.fleet import Fleet
from model.loader import load
from providers.traces import read_trace

TRACE_VARIABLE = "MUSTER_PHILLY_TRACE"
"""Names the file of the trace, which is public and no part of the repository (`docs/guides/benchmarks.md`)."""
_DAY_S = 86_400.0


class TraceWindow(NamedTuple):
    """Virtual clusters of the trace that are played together for a while, as queues of one fleet."""

    queues: tuple[str, ...]
    machines: int
    """Of eight GPUs."""
    from_days: float
    """From their first arrival to the beginning."""
    days: float


SCENES = {
    "chosen": TraceWindow(("103959", "ed69ec"), 6, 40.0, 14.0),
    "held_out": TraceWindow(("2869ce", "7f04ca"), 28, 10.0, 30.0),
}
"""So that gangs wait, and few enough at once: a future takes as long as all that wait take to start."""
EVERY_S = 8 * 3600.0
"""From one forecast to the next, at least: the agent makes more, and all of it has to end within ten minutes of CPU."""
STARTS_S = 2 * POD_STARTS_S
"""From the admission of a gang until its pods run in the virtual world."""
LOOK_S = 0.0
"""Waiting gangs are considered whenever anything changes, as by the agent; in other replays once a minute."""
WAITED_S = 120.0
"""Gangs that start sooner are told nothing."""
LEARNED = 30
"""Estimates that are told before any counts: what an agent that has just started tells is not judged."""


def trace() -> Path:
    """Where the trace is."""
    return Path(os.environ.get(TRACE_VARIABLE, "philly_jobs.csv"))


def fleet_of(machines: int, queues: Sequence[str]) -> Fleet:
    """So many machines for all queues, each of which is guaranteed its part and may borrow the rest."""
    part = 8 * machines // len(queues)
    pool = f"""
apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {{name: a100}}
spec:
  instanceTypes: [p4d.24xlarge]
  zones: [us-east-1a]
  capacityTypes: [on-demand]
  limits: {{nodes: {machines}}}
  disruption: {{consolidationPolicy: WhenEmpty, consolidateAfter: 1h, budgets: [{{nodes: "100%"}}]}}
---
apiVersion: muster.dev/v1alpha1
kind: Team
metadata: {{name: all}}
spec: {{namespaces: []}}
"""
    teams = "".join(
        f"""---
apiVersion: muster.dev/v1alpha1
kind: Team
metadata: {{name: t{name}}}
spec: {{parent: all, namespaces: [n{name}], quotas: {{a100: {{guaranteed: {{nvidia.com/gpu: {part}}}}}}}}}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {{name: "{name}"}}
spec: {{team: t{name}, flavors: [a100]}}
"""
        for name in queues
    )
    return load({"fleet.yaml": (pool + teams).encode()})


def work_of(fleet: Fleet, window: TraceWindow) -> list[SubmittedGang]:
    """The work of a window of the trace."""
    named = [it for it in read_trace(trace()).work if it.queue in window.queues and it.gpus <= 8 * window.machines]
    begin_s = min(it.submitted_s for it in named) + window.from_days * _DAY_S
    return [at_home(fleet, it) for it in named if begin_s <= it.submitted_s < begin_s + window.days * _DAY_S]


AIMS = {"p50": 50, "p90": 90}


@dataclass(slots=True)
class Told:
    """An estimate that was told, before and after correction."""

    queue: str
    raw: StartEstimate
    said: StartEstimate


@dataclass(slots=True)
class TraceScene:
    """One window, played from event to event, with an estimate for everybody who waits."""

    agent: VirtualAgent
    futures: int = FUTURES
    times: RunTimes = field(default_factory=RunTimes)
    arrivals: PastArrivals = field(default_factory=PastArrivals)
    correction: ForecastCorrection = field(default_factory=ForecastCorrection)
    told: dict[str, Told] = field(default_factory=dict)
    learned: set[str] = field(default_factory=set)
    forecast_s: float = float("-inf")
    known: dict[str, Gang] = field(default_factory=dict)

    def look(self) -> None:
        """Learns what has ended and started; tells those who wait."""
        world = self.agent.world
        new_gangs = {uid: gang for uid, gang in world.gangs.view.items() if uid not in self.known}
        self.known |= new_gangs
        self.arrivals.note(new_gangs.values(), world.now_s)
        for uid, history in world.gang_histories.items():
            if history.finished_s is not None and uid not in self.learned and uid in self.known:
                self.learned.add(uid)
                began_s, ended_s = history.runs[-1]
                ended = EndedRun(self.known[uid], ended_s - began_s + STARTS_S)
                self.times.learn(ended)
                self.arrivals.learn(ended)
        started = {uid: self.started_s(uid) for uid in self.told}
        self.correction.judge(
            {uid: at_s for uid, at_s in started.items() if at_s is not None}, frozenset(), world.now_s
        )
        new = [uid for uid in sorted(world.pending - self.told.keys()) if self.waits(uid)]
        if world.now_s < self.forecast_s + EVERY_S or not new:
            return
        self.forecast_s = world.now_s
        snapshot = with_pods(world)
        forecaster = StartForecaster(self.agent.fleet, snapshot, self.times, self.arrivals, self.futures)
        while forecaster.left:
            forecaster.step()
        found = forecaster.forecast
        for uid in new:
            raw = found.estimate(uid)
            queue = world.gangs.view[uid].queue
            self.told[uid] = Told(queue, raw, self.correction.told(uid, queue, raw))

    def waits(self, uid: str) -> bool:
        """Whether a gang has waited for a while and never run: who starts at once asks nobody when."""
        history = self.agent.world.gang_histories[uid]
        return not history.runs and self.agent.world.now_s >= history.work.submitted_s + WAITED_S

    def started_s(self, uid: str) -> float | None:
        """When a gang was admitted first."""
        found = self.agent.world.gang_histories[uid].started_s
        return None if found is None else found - STARTS_S


def with_pods(world: VirtualWorld) -> Snapshot:
    """The virtual world as a cluster would show it: a pod object for every pod."""
    seen = world.snapshot()
    pods = {
        f"{gang.namespace}/{gang.workload}": tuple(_pods(gang, seen.now_s))
        for gang in seen.gangs.values()
        if gang.state is GangState.ADMITTED and world.standing.get(f"{gang.namespace}/{gang.workload}")
    }
    return replace(seen, gang_pods=pods)


def _pods(gang: Gang, now_s: float) -> Iterator[Pod]:
    for number, pin in enumerate(gang.pins):
        for each in range(pin.count):
            name = f"{gang.job.name}-{pin.pod_set}-{number}-{each}"
            requests = gang.pod_set(pin.pod_set).requests
            yield Pod(
                f"uid-{name}", gang.namespace, name, pin.node, "Running", requests, gang.workload, pin.pod_set,
                ready=True, started_at_s=now_s,
            )  # fmt: skip


def play(name: str) -> TraceScene:
    """Plays one window to its end."""
    window = SCENES[name]
    fleet = fleet_of(window.machines, window.queues)
    work = work_of(fleet, window)
    begin_s = min(it.submitted_s for it in work)
    world = VirtualWorld(fleet, Snapshot(now_s=begin_s, catalog=catalog_of("us-east-1")), work)
    scene, until_s = TraceScene(VirtualAgent(fleet, world, LOOK_S)), begin_s + window.days * _DAY_S
    while True:
        scene.agent.settle()
        scene.look()
        if world.now_s >= until_s:
            return scene
        world.advance(min(until_s, world.next_s, scene.agent.next_s()))


def coverage(scene: TraceScene) -> Mapping[str, float]:
    """The parts (%) of estimates that came true, and of how many."""
    now_s, hits, told = scene.agent.world.now_s, {"p50": [], "p90": [], "raw_p50": [], "raw_p90": []}, 0
    unknown = sum(it.said.p50_s is None for it in scene.told.values())
    for number, (uid, it) in enumerate(scene.told.items()):
        if it.said.p50_s is None or number < LEARNED:
            continue
        began_s = scene.started_s(uid)
        told += 1
        for label, at_s in (
            ("p50", it.said.p50_s),
            ("p90", it.said.p90_s),
            ("raw_p50", it.raw.p50_s),
            ("raw_p90", it.raw.p90_s),
        ):
            if at_s is not None and (began_s is not None or now_s > at_s):
                hits[label].append(began_s is not None and began_s <= at_s)
    shares = {f"{label}_covered_pct": 100 * sum(each) / len(each) for label, each in hits.items() if each}
    off = {f"{label}_off_pct": abs(shares[f"{label}_covered_pct"] - aim) for label, aim in AIMS.items() if hits[label]}
    return {"estimates": told, "judged": len(hits["p50"]), "unknown": unknown, **shares, **off}


def forecast_of_a_thousand(hours: float = 12.0) -> dict[str, float]:
    """CPU of one forecast of a thousand machines, all of which are taken, with more work than they can do."""
    fleet = load({"fleet.yaml": replay.FLEET.encode()})
    work = replay.work(hours / 24, load=1.3)
    begin_s = work[0].submitted_s
    world = VirtualWorld(fleet, Snapshot(now_s=begin_s, catalog=catalog_of("us-east-1")), work)
    scene = TraceScene(VirtualAgent(fleet, world, 60.0), forecast_s=float("inf"))
    while world.now_s < begin_s + hours * 3600:
        scene.agent.settle()
        scene.look()
        world.advance(min(begin_s + hours * 3600, world.next_s, scene.agent.next_s()))
    forecaster, steps = StartForecaster(fleet, with_pods(world), scene.times, scene.arrivals), []
    while forecaster.left:
        began_s = time.process_time()
        forecaster.step()
        steps.append(time.process_time() - began_s)
    found = {
        "waiting": len(world.pending),
        "futures": forecaster.forecast.futures,
        "cpu_s": sum(steps),
        "longest_step_ms": 1000 * max(steps),
        "every_min": sum(steps) / SHARE / 60,
    }
    return {f"thousand_{label}": value for label, value in found.items()}


def run() -> dict[str, float]:
    """What a forecast takes, and coverage of every window where the trace is there."""
    began_s, found = time.process_time(), forecast_of_a_thousand()
    if not trace().is_file():
        sys.stderr.write(f"skipped: {TRACE_VARIABLE} names no file with the trace of Philly\n")
        return found | {"skipped": 1}
    for name in SCENES:
        found |= {f"{name}_{label}": value for label, value in coverage(play(name)).items()}
    return found | {"cpu_s": time.process_time() - began_s}
