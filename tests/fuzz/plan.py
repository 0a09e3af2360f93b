"""The plan held to the truth: pairs of made-up fleets, each planned in a running world, pushed there, and compared.

Compared are machines (pool, type, zone, capacity type, layout), gangs (state and reason) and the bill once nothing
changes any more, and the machines that the plan itself tells of. `EXCUSES` lists what a plan need not know.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import fleet.plan.simulated_run
from agent.demo.jobs import Manifest
from agent.simulation import Simulation, Tempo
from agent.watch import Watcher
from fleet.mig.layouts import layout_name
from fleet.plan import Plan, make_plan
from fleet.plan.render import to_json, to_markdown, to_text
from fleet.plan.simulated_run import SimulatedRun, simulate
from fleet.replay.cluster_model import TERMINATION_S
from fleet.snapshot import Claim, Gang, Snapshot
from model.fleet import Fleet
from model.index import Index
from model.kinds import NEVER
from providers.sim.controllers.objects import is_true
from providers.sim.ec2 import account
from providers.sim.machines import MachineTimings
from providers.sim.store import Store
from tests.agent.scenes import CATALOG
from tests.fuzz.field_values import DEVICES, DRAWN, STARTUP_TAINT, FieldPath
from tests.fuzz.fleet_pairs import Docs, base_fleet, loaded, mutated, text_of, work
from tests.fuzz.odd_snapshots import distorted

Attack = Callable[[Random], None]
SETTLES_S = 900.0
"""The world is looked at this long after the last thing that the plan foresees."""
LONGEST_S = 3 * 3600.0
"""What a plan foresees for later than this is not waited for."""
MOST_REFUSED = 20
"""Changes that are drawn until one is not refused."""
LISTING_S = 10.0
"""So often the machines are listed: they are known to be terminated about when the plan takes them to be."""
PAUSES_S = (0.4, 30.0, 90.0, 300.0, 870.0)
"""Between a change in the world and a push: within a batch of single pods, and otherwise at no instant at which a batch
closes or a job ends. What falls on the instant of the push itself happens before or after it, and no plan can say."""
SPINS_S = 60.0
"""A fleet that does not come to rest at least lets time pass: a plan that is given up before turned in a circle."""
HEADS = 5
"""Changes that are pushed one after the other into one world."""


class FleetState(NamedTuple):
    """What is compared. `machines`: (pool, type, zone, capacity type, layout); `gangs`: (state, reason) by name."""

    machines: Counter[tuple[str, ...]]
    gangs: Mapping[str, tuple[str, str]]
    usd_h: float

    def differences(self, other: "FleetState") -> list[str]:
        """What is otherwise in the other, in words."""
        more, fewer = self.machines - other.machines, other.machines - self.machines
        found = [f"machines: {sorted(more.elements())}"] * bool(more)
        found += [f"not {sorted(fewer.elements())}"] * bool(fewer)
        for name in sorted(self.gangs.keys() | other.gangs.keys()):
            if self.gangs.get(name) != other.gangs.get(name):
                found.append(f"{name}: {self.gangs.get(name)}, not {other.gangs.get(name)}")
        if abs(self.usd_h - other.usd_h) > 0.01:
            found.append(f"{self.usd_h} USD/h, not {other.usd_h}")
        return found


def fleet_state(claims: Mapping[str, Claim], gangs: Mapping[str, Gang]) -> FleetState:
    staying = [claim for claim in claims.values() if not claim.deleting]
    return FleetState(
        Counter(_machine(claim) for claim in staying),
        {gang.name: (str(gang.state), str(gang.reason)) for gang in gangs.values()},
        round(sum(claim.price_usd_h for claim in staying), 3),
    )


def _machine(claim: Claim) -> tuple[str, ...]:
    pool = claim.capacity_pool
    return claim.node_pool, pool.instance_type, pool.zone, pool.capacity_type, layout_name(claim.layout)


def told(plan: Plan, before: Snapshot) -> Counter[tuple[str, ...]]:
    """The machines there will be by what a plan tells: those of now, with its changes."""
    there = Counter(_machine(it) for it in before.claims.values() if not it.deleting and it.disruption is None)
    for change in (*plan.machines, *plan.without.machines):
        if change.when.held or change.verb == "keep":
            continue
        for facts, number in ((change.before, -1), (change.after, 1)):
            if facts is not None and not facts.get("standing"):
                keys = ("nodePool", "instanceType", "zone", "capacityType")
                there[(*(facts[key] for key in keys), facts.get("layout", ""))] += number
    return +there


@dataclass(slots=True)
class PairTally:
    """What became of the pairs of a run."""

    pairs: int = 0
    invalid: int = 0
    """Changes that did not load, and were drawn again."""
    refused: int = 0
    """Changes that rails refused, and were drawn again."""
    excused: Counter[str] = field(default_factory=Counter)
    moved: int = 0
    """Pairs in which the head, or what happens anyway, moves a machine or a gang."""


class PlannedPair(NamedTuple):
    """A head in its world: what was foreseen."""

    words: list[str]
    docs: Docs
    run: SimulatedRun
    """Of the head, until `LONGEST_S` from then."""

    @property
    def before(self) -> Snapshot:
        return self.run.begin


@contextmanager
def recorded_runs() -> Iterator[list[SimulatedRun]]:
    """The runs that plans are made of meanwhile, that of the base before that of the head; shorter ones than usual."""
    runs: list[SimulatedRun] = []

    def run(of: Fleet, snapshot: Snapshot, *, before: Fleet | None = None) -> SimulatedRun:
        runs.append(simulate(of, snapshot, before=before, horizon_s=LONGEST_S))
        return runs[-1]

    with patch.object(fleet.plan.simulated_run, "simulate", run):
        yield runs


class Excused(Exception):
    """A pair that is not compared. Its world is left."""


class Unfaithful(AssertionError):
    """What a plan says is not what happened."""


def _restless(pair: PlannedPair) -> bool:
    return pair.run.given_up_after_s is not None


def _late(pair: PlannedPair) -> bool:
    return _last_s(pair) > LONGEST_S - SETTLES_S


def _last_s(pair: PlannedPair) -> float:
    """How long after the push the plan sees the last thing happen."""
    return max((it.at_s for it in pair.run.actions), default=pair.before.now_s) - pair.before.now_s


def _expires_again(pair: PlannedPair) -> bool:
    pools, until_s = pair.run.expire_again, pair.before.now_s + _last_s(pair) + SETTLES_S
    return any(
        claim.launched_at_s + pools.get(claim.node_pool, NEVER) <= until_s for claim in pair.run.end.claims.values()
    )


EXCUSES: Mapping[str, Callable[[PlannedPair], bool]] = {
    "the plan says that the fleet does not come to rest": _restless,
    "the plan foresees something for later than the test waits": _late,
    "what the plan buys expires in turn, which it says and does not follow": _expires_again,
}
"""Why a pair is not compared -> whether it is so."""


class NodeAgents:
    """What runs on every node once it is ready: it takes the start-up taint away, as a network plug-in does, and offers
    the devices that overlays promise, whether one promises them or not. That a promise is false no plan can know.
    """

    name = "node-agents"

    def __init__(self) -> None:
        self.store: Store

    def step(self, now: float) -> float | None:
        del now
        for node in self.store.list(self.store.resource("Node"), ""):
            if is_true(node, "Ready"):
                self._offer(self._untaint(node))
        return None

    def _untaint(self, node: dict[str, Any]) -> dict[str, Any]:
        taints = node["spec"].get("taints") or []
        kept = [taint for taint in taints if taint["key"] != STARTUP_TAINT]
        if len(kept) == len(taints):
            return node
        return self.store.update(self.store.resource("Node"), {**node, "spec": {**node["spec"], "taints": kept}})

    def _offer(self, node: dict[str, Any]) -> None:
        status = node["status"]
        if not status["allocatable"].keys() >= DEVICES.keys():
            offered = {name: {**status[name], **DEVICES} for name in ("allocatable", "capacity")}
            changed = {**node, "status": {**status, **offered}}
            self.store.update(self.store.resource("Node"), changed, subresource="status")


class PairWorld:
    """A running world under a made-up fleet, into which one change after the other is pushed."""

    def __init__(self, rng: Random, tally: PairTally, watchers: Sequence[Watcher] = ()) -> None:
        self.rng = rng
        self.tally = tally
        self.docs = base_fleet(rng)
        agents = NodeAgents()
        self.sim = Simulation(
            catalog=CATALOG,
            timings=MachineTimings(stopping_s=TERMINATION_S - LISTING_S / 2),
            tempo=Tempo(tick_s=15.0, listing_s=LISTING_S, refresh_s=1e9),
            publishes=False,
            watchers=watchers,
            more=[agents],
        )
        agents.store = self.sim.store
        self._launched = count(1)
        self.sim.push({"fleet.yaml": text_of(self.docs)})
        self.advance(1)
        self.jobs: list[Manifest] = []
        self.submitted = 0
        for _ in range(rng.randint(3, 7)):
            self._submit()
        self.advance(rng.choice((200.0, 600.0, 600.0)))

    def advance(self, seconds: float) -> None:
        """Lets time pass. Nodes are named in the order of launches: of equal places, the first by name is taken."""
        with patch.object(account, "private_dns", lambda *_: f"ip-{next(self._launched):06d}.ec2.internal"):
            self.sim.advance(seconds)

    def _submit(self) -> None:
        made = work(self.rng, self.docs, f"j{self.submitted}")
        self.submitted += 1
        self.jobs.append(made)
        self.sim.submit(made)

    @property
    def alive(self) -> bool:
        """Whether there is something that a change can move."""
        return bool(self.sim.claims()) and any(gang.state == "Admitted" for gang in self.sim.gangs().values())

    @property
    def busy(self) -> frozenset[str]:
        """What has machines or gangs, as keys of documents."""
        claims, gangs = self.sim.claims().values(), self.sim.gangs().values()
        queues = {gang.queue for gang in gangs}
        teams = {it["spec"]["team"] for key, it in self.docs.items() if key.startswith("Queue/")}
        return frozenset(
            [f"NodePool/{claim.node_pool}" for claim in claims]
            + [f"Queue/{queue}" for queue in queues]
            + [f"Team/{team}" for team in teams]
        )

    def stir(self) -> None:
        """Something else happens before the next push: work comes or goes, and some time passes, long or short."""
        if self.rng.random() < 0.4:
            self._submit()
        if self.jobs and self.rng.random() < 0.15:
            gone = self.jobs.pop(self.rng.randrange(len(self.jobs)))
            if self.sim.object(gone["kind"], gone["metadata"]["name"], gone["metadata"]["namespace"]) is not None:
                self.sim.delete(gone)
        self.advance(self.rng.choice(PAUSES_S))

    def pair(self, first: FieldPath | None = None) -> None:
        """Draws a change, pushes it, which plans it, waits, and compares. Raises `Unfaithful`."""
        for _ in range(MOST_REFUSED):
            docs, words, invalid = mutated(self.rng, self.docs, first, busy=self.busy)
            self.tally.invalid += invalid
            with recorded_runs() as runs:
                self.sim.push({"fleet.yaml": text_of(docs)})
                self.advance(0)
            if self.sim.brain.sync.state.outcome != "Refused" or _restless(PlannedPair(words, docs, runs[-1])):
                break
            self.tally.refused += 1  # a rail that cannot be lifted: nothing happens, as the plan says
        self.tally.pairs += 1
        if not runs:
            raise Unfaithful(f"{'; '.join(words)}: {self.sim.brain.sync.state.message}")
        self.docs = docs
        pair = PlannedPair(words, docs, runs[-1])
        excuse = next((why for why, holds in EXCUSES.items() if holds(pair)), "")
        if excuse:
            self.tally.excused[excuse] += 1
            raise Excused(excuse)
        self.advance(_last_s(pair) + SETTLES_S)
        self._compare(pair)

    def _compare(self, pair: PlannedPair) -> None:
        state = self.sim.brain.sync.state
        if state.applied != state.observed or state.plan is None:
            raise Unfaithful(f"{'; '.join(pair.words)}: {state.outcome}: {state.message}")
        if failed := [f"{it.name}: {it.failure}" for it in self.sim.gangs().values() if it.failure is not None]:
            raise Unfaithful(f"{'; '.join(pair.words)}: nothing can be decided about {'; '.join(failed)}")
        happened = fleet_state(self.sim.claims(), self.sim.gangs())
        found = fleet_state(pair.run.end.claims, pair.run.end.gangs).differences(happened)
        found += [] if state.plan.then is None else self._bill(state.plan.then.usd_h, happened.usd_h)
        if not found and (said := told(state.plan, pair.before)) != happened.machines:
            found = [f"the plan tells of {dict(said)}, there are {dict(happened.machines)}"]
        self.tally.moved += bool(pair.run.actions)
        if found:
            raise Unfaithful(f"{'; '.join(pair.words)}: the plan says {'; '.join(found)}")

    def _bill(self, said: float, is_: float) -> list[str]:
        return [f"a bill of {said}, not {is_}"] if abs(said - is_) > 0.01 else []


def living_world(rng: Random, tally: PairTally, watchers: Sequence[Watcher] = ()) -> PairWorld:
    """A world in which something runs."""
    while not (world := PairWorld(rng, tally, watchers)).alive:
        pass
    return world


def pairs(seed: object, number: int, tally: PairTally, *, first: int = 0) -> Iterator[Exception]:
    """Yields what is wrong with so many pairs; the world of a pair that went wrong is left."""
    rng, world, left = Random(f"pairs:{seed}"), None, 0
    for done in range(number):
        try:
            if world is not None and left:
                world.stir()
            if world is None or left == 0 or not world.alive:
                world, left = living_world(rng, tally), HEADS
            left -= 1
            world.pair(DRAWN[(first + done) % len(DRAWN)])
        except Excused:
            world = None
        except Exception as error:  # noqa: BLE001  what is wrong with one pair is told, and the others are looked at
            world = None
            yield error


class PlanFuzzer:
    """Feeds pairs of fleets: one in four in a world in which it happens, the others in snapshots that make no sense."""

    name = "plan"
    most_seconds = 120.0
    most_growth_mib = 256

    def __init__(self) -> None:
        self.tally = PairTally()

    @contextmanager
    def start(self) -> Iterator[Attack]:
        """A few worlds whose snapshots are distorted; a pair that is to happen has a world of its own."""
        worlds = [living_world(Random(f"worlds:{number}"), PairTally()) for number in range(4)]
        seen = [(world.docs, world.sim.brain.mirror.snapshot(world.sim.now_s, frozenset())) for world in worlds]
        yield lambda rng: self._attack(rng, seen)

    def _attack(self, rng: Random, seen: Sequence[tuple[Docs, Snapshot]]) -> None:
        if rng.random() < 0.75:
            plans_twice(rng, *rng.choice(seen))
            return
        world = living_world(rng, self.tally)
        with suppress(Excused):
            world.pair(rng.choice(DRAWN))


def plans_twice(rng: Random, docs: Docs, snapshot: Snapshot) -> None:
    """Plans from one changed fleet to another in a distorted snapshot, twice: no error, no circle, the same plan."""
    one, other = loaded(mutated(rng, docs)[0]), loaded(mutated(rng, docs)[0])
    assert one is not None
    assert other is not None
    odd = distorted(rng, snapshot)
    base = rng.choice(("", "base"))
    with recorded_runs() as runs:
        plans = [
            make_plan(one, other, replace(odd, index=Index()), base_revision=base, head_revision="head")
            for _ in range(2)
        ]
    spinning = [run for run in runs if run.given_up_after_s is not None and run.given_up_after_s < SPINS_S]
    assert not spinning, f"thousands of turns within {spinning[0].given_up_after_s} s: {spinning[0].actions[-3:]}"
    first, second = (json.dumps(to_json(plan), sort_keys=True) for plan in plans)
    assert first == second, "the same pair in the same snapshot, another plan"
    to_text(plans[0])
    to_markdown(plans[0])
