"""How true estimates of starts are: traces are replayed, gangs are told when they will start, and start when they do.

`python -m bench calibration`. Of each gang that waits the first estimate counts, made within eight hours after it came,
by what the agent would have learned until then: nothing of the future is known. Constants of forecast and correction
are chosen on the part `tuning` (`python -m bench.calibration tuning`), whose queues are others than those of `test`.
Without the traces (`PHILLY`, `OPENB`) only what one forecast of a thousand machines takes is measured, and it says so.
"""

import os
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf, nan
from pathlib import Path
from statistics import median
from typing import NamedTuple

from agent.cli.look import catalog_of
from agent.explanations import SHARE
from bench import replay
from fleet.explain.gang_facts import StartEstimate
from fleet.plan.forecast_correction import LEAST_S, ForecastCorrection
from fleet.plan.past_arrivals import PastArrivals
from fleet.plan.start_forecast import StartForecaster
from fleet.replay.cluster_model import POD_STARTS_S
from fleet.replay.run_times import EndedRun, RunTimes, ended_run
from fleet.replay.submissions import SubmittedGang
from fleet.replay.virtual_agent import VirtualAgent
from fleet.replay.virtual_run import at_home
from fleet.replay.virtual_world import VirtualWorld
from fleet.snapshot import Gang, GangState, Pod, Snapshot
from model.fleet import Fleet
from model.loader import load
from providers.traces import read_trace

PHILLY, OPENB = "MUSTER_PHILLY_TRACE", "MUSTER_OPENB_TRACE"
"""Variables that name the files of the traces, which are public and no part of the repository."""
_DAY_S = 86_400.0


class TraceWindow(NamedTuple):
    """Two queues of a trace that are played together for two weeks, on as many machines as keep them waiting."""

    trace: str
    queues: tuple[str, str]
    day: int
    """From the first arrival of the trace to the beginning."""

    @property
    def name(self) -> str:
        """What progress calls it."""
        return f"{'+'.join(self.queues)}@{self.day}"


def _philly(*queues_and_day: tuple[str, str, int]) -> list[TraceWindow]:
    return [TraceWindow(PHILLY, (first, second), day) for first, second, day in queues_and_day]


PARTS: Mapping[str, Sequence[TraceWindow]] = {
    "tuning": _philly(
        ("2869ce", "ed69ec", 25),
        ("2869ce", "7f04ca", 25),
        ("103959", "2869ce", 25),
        ("103959", "ed69ec", 39),
        ("103959", "7f04ca", 39),
        ("ed69ec", "7f04ca", 39),
        ("103959", "7f04ca", 53),
        ("2869ce", "ed69ec", 53),
        ("2869ce", "7f04ca", 53),
        ("7f04ca", "2869ce", 67),
        ("103959", "ed69ec", 67),
        ("103959", "7f04ca", 67),
        ("103959", "2869ce", 81),
        ("7f04ca", "ed69ec", 81),
        ("103959", "ed69ec", 81),
        ("6214e9", "7f04ca", 95),
    ),
    "test": [
        *_philly(
            ("0e4a51", "e13805", 39),
            ("e13805", "6c71a0", 53),
            ("0e4a51", "6c71a0", 67),
            ("e13805", "ee9e8c", 67),
            ("6c71a0", "ee9e8c", 81),
            ("b436b2", "e13805", 81),
            ("0e4a51", "ee9e8c", 95),
            ("6c71a0", "b436b2", 95),
        ),
        TraceWindow(OPENB, ("ls", "be"), 105),
    ],
}
"""No queue is in both parts, and no gang in two windows of `test`: `docs/guides/benchmarks.md` has the rule."""
DAYS, GANGS_MOST = 14.0, 600
"""How long gangs are told, or until so many have come."""
AFTER_S = 3 * _DAY_S
"""How much longer is played at most, until all that were told have started: nobody is told any more."""
LOAD = 0.8
"""Of the machines, if all work ran as it came."""
AIMS = {"p50": 50, "p90": 90}
RESAMPLES = 2_000
EVERY_S = 12 * 3600.0
"""From one forecast to the next, at least: the agent makes more, and all of it has to end within ten minutes of CPU."""
NEW_S = 8 * 3600.0
"""Gangs that have waited longer when the next forecast is made are told nothing: the agent would have told them."""
JUDGED_MOST = 4
"""Gangs of one forecast that are judged, in the order they came: those of one jam come true or fail together."""
STARTS_S = 2 * POD_STARTS_S
"""From the admission of a gang until its pods run in the virtual world."""
LOOK_S = 0.0
"""Waiting gangs are considered whenever anything changes, as by the agent; in other replays once a minute."""
WAITED_S = 120.0
"""Gangs that start sooner are told nothing."""


class PlayedWork(NamedTuple):
    """The gangs of a window, those that had ended before, from when until when others are told, and on how much."""

    before: Sequence[SubmittedGang]
    work: Sequence[SubmittedGang]
    begin_s: float
    until_s: float
    machines: int


@cache
def _trace(variable: str) -> Sequence[SubmittedGang]:
    path = Path(os.environ.get(variable, ""))
    return [replace(it, queue=it.queue.lower()) for it in read_trace(path).work] if path.is_file() else ()


def work_of(window: TraceWindow) -> PlayedWork:
    """The work of a window, and what an agent that keeps a record would have known at its beginning."""
    begin_s = _trace(window.trace)[0].submitted_s + window.day * _DAY_S
    of = [it for it in _trace(window.trace) if it.queue in window.queues]
    before = [it for it in of if it.submitted_s + it.run_s <= begin_s]
    come = [it for it in of if begin_s <= it.submitted_s < begin_s + DAYS * _DAY_S]
    until_s = come[GANGS_MOST].submitted_s if len(come) > GANGS_MOST else begin_s + DAYS * _DAY_S
    told = [it for it in come if it.submitted_s < until_s]
    busy_s = sum(min(it.run_s, until_s - it.submitted_s) * it.gpus for it in told)
    machines = max(2, round(busy_s / (until_s - begin_s) / LOAD / 8))
    played = [it for it in of if begin_s <= it.submitted_s < until_s + AFTER_S and it.gpus <= 8 * machines]
    return PlayedWork(before, played, begin_s, until_s, machines)


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


@dataclass(slots=True)
class Told:
    """An estimate that was told, before and after correction, and whether it is judged."""

    queue: str
    raw: StartEstimate
    said: StartEstimate
    judged: bool


@dataclass(slots=True)
class TraceScene:
    """One window, played from event to event, with an estimate for everybody who waits."""

    agent: VirtualAgent
    times: RunTimes = field(default_factory=RunTimes)
    arrivals: PastArrivals = field(default_factory=PastArrivals)
    correction: ForecastCorrection = field(default_factory=ForecastCorrection)
    told: dict[str, Told] = field(default_factory=dict)
    learned: set[str] = field(default_factory=set)
    forecast_s: float = float("-inf")
    """When the last forecast was made."""
    forecasts: int = 0
    known: dict[str, Gang] = field(default_factory=dict)

    def remember(self, before: Iterable[SubmittedGang]) -> None:
        """Learns what an agent reads of its record when it starts."""
        for ended in map(ended_run, before):
            self.times.learn(ended)
            self.arrivals.learn(ended)

    def look(self, *, tell: bool = True) -> None:
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
        started = {uid: at_s for uid in self.told if (at_s := self.started_s(uid)) is not None}
        self.correction.judge(started, frozenset(), world.now_s)
        if tell and world.now_s >= self.forecast_s + EVERY_S:
            self._tell([uid for uid in sorted(world.pending - self.told.keys()) if self.waits(uid)])

    def _tell(self, new: Sequence[str]) -> None:
        if not new:
            return
        world = self.agent.world
        self.forecast_s, self.forecasts = world.now_s, self.forecasts + 1
        forecaster = StartForecaster(self.agent.fleet, with_pods(world), self.times, self.arrivals)
        while forecaster.left:
            forecaster.step()
        judged = evenly(sorted(new, key=lambda uid: (self.known[uid].created_at_s, uid)), JUDGED_MOST)
        for uid in new:
            queue, raw = self.known[uid].queue, forecaster.forecast.estimate(uid)
            self.told[uid] = Told(queue, raw, self.correction.told(uid, queue, raw), uid in judged)

    def waits(self, uid: str) -> bool:
        """Whether a gang has waited for a while and never run: who starts at once asks nobody when."""
        history, now_s = self.agent.world.gang_histories[uid], self.agent.world.now_s
        return not history.runs and WAITED_S <= now_s - history.work.submitted_s <= NEW_S

    def started_s(self, uid: str) -> float | None:
        """When a gang was admitted first."""
        found = self.agent.world.gang_histories[uid].started_s
        return None if found is None else found - STARTS_S

    @property
    def all_started(self) -> bool:
        """Whether everybody has started who was told when."""
        return all(self.agent.world.gang_histories[uid].runs for uid in self.told)


def evenly(all_of_them: Sequence[str], most: int) -> frozenset[str]:
    """So many of them at most, evenly spread."""
    few = min(most, len(all_of_them))
    return frozenset(all_of_them[(2 * number + 1) * len(all_of_them) // (2 * few)] for number in range(few))


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


def play(window: TraceWindow) -> TraceScene:
    """Plays one window to its end, and on until all have started who were told when."""
    played = work_of(window)
    fleet = fleet_of(played.machines, window.queues)
    empty = Snapshot(now_s=played.begin_s, catalog=catalog_of("us-east-1"))
    world = VirtualWorld(fleet, empty, [at_home(fleet, it) for it in played.work])
    scene = TraceScene(VirtualAgent(fleet, world, LOOK_S))
    scene.remember(at_home(fleet, it) for it in played.before)
    while True:
        scene.agent.settle()
        scene.look(tell=world.now_s < played.until_s)
        over_s = played.until_s if scene.all_started else played.until_s + AFTER_S
        if world.now_s >= over_s:
            return scene
        world.advance(min(over_s, world.next_s, scene.agent.next_s()))


class JudgedEstimate(NamedTuple):
    """An estimate whose gang has started, or whose instants have passed: which came true, and how wide it was."""

    met: Mapping[str, bool]
    """Of its instants those that can be judged."""
    width: float | None
    """Its nine-tenths over its median, as waits from when it was told."""


def judged(scene: TraceScene) -> list[JudgedEstimate]:
    """The estimates of one window that count."""
    found, now_s = [], scene.agent.world.now_s
    for uid, it in scene.told.items():
        if not it.judged or it.said.p50_s is None:
            continue
        instants = {"p50": it.said.p50_s, "p90": it.said.p90_s, "raw_p50": it.raw.p50_s, "raw_p90": it.raw.p90_s}
        began_s = scene.started_s(uid)
        met = {
            label: began_s is not None and began_s <= (at_s or inf)
            for label, at_s in instants.items()
            if began_s is not None or (at_s or inf) < now_s
        }
        late_s = it.said.p90_s
        waits_s = [at_s - it.said.made_at_s + LEAST_S for at_s in (it.said.p50_s, late_s or inf)]
        found.append(JudgedEstimate(met, waits_s[1] / waits_s[0]))
    return found


def covered_pct(windows: Iterable[Sequence[JudgedEstimate]], label: str) -> float:
    """The part (%) of estimates that came true."""
    hits = [it.met[label] for window in windows for it in window if label in it.met]
    return 100 * sum(hits) / len(hits) if hits else nan


def interval_pct(windows: Sequence[Sequence[JudgedEstimate]], label: str) -> tuple[float, float]:
    """Between what the part (%) lies with 95 % confidence: windows are drawn again (bootstrap).

    They are independent, and estimates of one window are not: those of one jam come true or fail together.
    """
    rng = random.Random(label)
    again = sorted(covered_pct(rng.choices(windows, k=len(windows)), label) for _ in range(RESAMPLES))
    return again[round(0.025 * RESAMPLES)], again[round(0.975 * RESAMPLES) - 1]


def coverage(scenes: Sequence[TraceScene]) -> dict[str, float]:
    """The parts (%) of estimates that came true, between what they lie, how wide they were, and of how many."""
    windows = [judged(scene) for scene in scenes]
    told = [it for scene in scenes for it in scene.told.values()]
    found: dict[str, float] = {
        "windows": len(windows),
        "forecasts": sum(scene.forecasts for scene in scenes),
        "told": len(told),
        "unknown": sum(it.said.p50_s is None for it in told if it.judged),
        "judged": sum(map(len, windows)),
        "open": sum("p90" not in it.met for window in windows for it in window),
        "p90_over_p50": median(it.width for window in windows for it in window),
    }
    for label in ("p50", "p90", "raw_p50", "raw_p90"):
        found[f"{label}_covered_pct"] = covered_pct(windows, label)
        found[f"{label}_low_pct"], found[f"{label}_high_pct"] = interval_pct(windows, label)
    return found | {f"{label}_off_pct": abs(found[f"{label}_covered_pct"] - aim) for label, aim in AIMS.items()}


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


def run(part: str = "test") -> dict[str, float]:
    """What a forecast takes, and coverage of every window of a part where its trace is there."""
    began_s, found = time.process_time(), forecast_of_a_thousand()
    windows = [it for it in PARTS[part] if _trace(it.trace)]
    for variable in {it.trace for it in PARTS[part]} - {it.trace for it in windows}:
        sys.stderr.write(f"skipped: {variable} names no file with a trace\n")
    if not windows:
        return found | {"skipped": 1}
    scenes = []
    for window in windows:
        scenes.append(play(window))
        sys.stderr.write(f"{window.name}: {scenes[-1].forecasts} forecasts, {len(judged(scenes[-1]))} judged\n")
    found |= coverage(scenes)
    return found | {"cpu_s": time.process_time() - began_s}


if __name__ == "__main__":
    for label, value in run(*sys.argv[1:]).items():
        print(f"{label:24} {value:12,.1f}")
