"""Scenes of machines that may go, and what a disruption method makes of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fleet.actions import Action, OpenClaims, SaveClaim
from fleet.disruption import METHODS
from fleet.disruption.context import DisruptionContext
from fleet.disruption.outcomes import DisruptionOutcome, DisruptionVerdict, Obstacle
from fleet.explain.verdicts import verdicts
from fleet.nodeclaims.drift import drifts
from fleet.nodeclaims.drift_facts import NO_DRIFT, Drift
from fleet.reasons import Reason
from fleet.snapshot import Claim, NodeDisruption, Snapshot
from model.fleet import Fleet
from model.index import Index
from model.kinds import NEVER
from tests.support.fleets import GPU, NOW, P5, P5S, FleetBuilder, foreign_pod, gang, small_fleet
from tests.support.world import World

BOTH = [P5.name, P5S.name]
OPEN: dict[str, Any] = {"budgets": [{"nodes": "100%"}]}
CHANGED: dict[str, Any] = {"template": {"labels": {"a": "b"}}}
ROLLS: dict[str, Any] = {"template": {"expireAfter": "1h"}}


def world_of(machines: int = 1, policy: dict[str, Any] | None = None, **pool: Any) -> World:
    world = World(FleetBuilder().pool(instanceTypes=pool.get("instanceTypes", [P5.name])).team().queue().build())
    for n in range(machines):
        world.machine(f"m{n}")
    declare(world, policy, **pool)
    return world


def declare(world: World, policy: dict[str, Any] | None = None, **pool: Any) -> None:
    builder = FleetBuilder().pool(**{"disruption": OPEN, **pool}).team(quotas={"h100": {GPU: 64}}).queue()
    world.fleet = (builder.policy(**policy) if policy else builder).build()


def busy(machines: int = 1, gpu: int = 4, run: dict[str, Any] | None = None, **pool: Any) -> World:
    """A gang on `m0`."""
    world = world_of(machines, **pool)
    world.runs(gang("g", gpu=gpu), ("m0", 1), **(run or {}))
    return world


def said(world: World, claim: str = "m0") -> dict[str, DisruptionVerdict]:
    return {it.method: it for it in verdicts(world.fleet, world.snapshot(), world.claims[claim])}


def quiet(seconds: int) -> dict[str, Any]:
    return {"disruption": {**OPEN, "consolidateAfter": f"{seconds}s"}}


def with_pod(**more: Any) -> World:
    world = busy(**CHANGED)
    world.stands(foreign_pod("p", "node-m0", **more))
    return world


def changed(world: World, claim: str = "m0", **facts: Any) -> World:
    world.claims[claim] = replace(world.claims[claim], **facts)
    return world


def in_hand(world: World, *subjects: str) -> World:
    world.busy = frozenset(subjects)
    return world


def dear_work(gpus: int) -> World:
    """A small gang alone on a big machine for days, without a checkpoint."""
    return busy(gpu=gpus, run={"admitted_at_s": NOW - 192 * 3600}, instanceTypes=BOTH)


def too_little_quota() -> World:
    world = busy(**CHANGED)
    it = FleetBuilder().pool(disruption=OPEN, **CHANGED).team(quotas={"h100": {GPU: 1}}).queue()
    world.fleet = it.build()
    return world


def cheaper_on_its_way() -> World:
    world = busy(instanceTypes=BOTH)
    small = world.machine("small", kind=P5S.name, replaces=("m0",), ready_at_s=0.0, registered_at_s=0.0, gang="uid-g")
    world.claims["small"] = replace(small, emptied_at_s=0.0)
    return world


def wide_gang(nodes: int) -> World:
    world = world_of(2, disruption={"budgets": [{"nodes": nodes}]}, **CHANGED)
    world.runs(gang("wide", count=2, gpu=8), ("m0", 1), ("m1", 1))
    return world


def busy_with(gangs: int) -> World:
    """Gangs of one GPU each, which small machines would hold one by one."""
    world = world_of(instanceTypes=BOTH)
    for n in range(gangs):
        world.runs(gang(f"g{n}", gpu=1), ("m0", 1))
    return world


def sold_out(world: World) -> World:
    world.shortages = {offer.pool_key: NOW + 60 for offer in world.catalog.offers}
    return world


def gone_pool() -> World:
    world = world_of()
    world.fleet = FleetBuilder().pool("other").team(quotas={}).build()
    return world


def silent(seconds: float, machines: int = 1, dumb: int = 1) -> World:
    world = world_of(machines)
    for n in range(dumb):
        node = world.nodes[f"node-m{n}"]
        world.nodes[node.name] = replace(node, ready=False, ready_changed_at_s=NOW - seconds)
    return world


def one_leaves() -> World:
    """The budget lets two go, and one is going."""
    world = wide_gang(2)
    world.machine("m2", disruption=NodeDisruption(Reason.EMPTY, "", NOW, NEVER))
    return world


def protected_neighbour() -> World:
    """A gang spans two machines; on the other one there is a second gang that may not move."""
    world = world_of(2, **CHANGED)
    world.runs(gang("wide", count=2, gpu=4), ("m0", 1), ("m1", 1))
    world.runs(gang("fixed", gpu=4), ("m1", 1), do_not_disrupt="true")
    return world


def frozen(world: World) -> World:
    """With a freeze window that is open."""
    declare(world, FREEZE, instanceTypes=BOTH)
    return world


def spared(world: World) -> World:
    """The node of `m0` says do-not-disrupt."""
    world.nodes["node-m0"] = replace(world.nodes["node-m0"], do_not_disrupt="true")
    return world


def fixed(machines: int, **pool: Any) -> World:
    """A drifted pool of two fixed machines, on the first of them a gang."""
    world = busy(machines, replicas=2)
    declare(world, **{"replicas": 2, **CHANGED, **pool})
    return world


def successor_boots() -> World:
    world = fixed(2)
    world.machine("new", replaces=("m0",), ready_at_s=0.0, registered_at_s=0.0)
    return world


def balanced() -> World:
    """Nearly all that the pool runs stands on the machine that would save a little."""
    policy = {"consolidationPolicy": "Balanced", "consolidationThreshold": 1, **OPEN}
    world = World(FleetBuilder().pool(instanceTypes=BOTH).team().queue().build())
    world.machine("m0", kind=P5S.name, capacity_type="on-demand", price_usd_h=15.0)
    for n in range(1, 4):
        world.machine(f"m{n}")
    declare(world, instanceTypes=BOTH, disruption=policy)
    for n in range(1, 4):
        world.runs(gang(f"full{n}", gpu=8), (f"m{n}", 1))
    world.runs(gang("g", gpu=1), ("m0", 1))
    return world


def advised(world: World, **pool: Any) -> World:
    """EC2 expects to take `m0`, and its pool acts on that."""
    declare(world, disruption={"onRebalance": "Replace", "consolidateAfter": "Never", **OPEN, **pool})
    return changed(world, advised_at_s=NOW - 60)


RETURNS: dict[str, Any] = {"returnToPreferred": {"after": "1h"}, "consolidateAfter": "Never", **OPEN}


def second_best(ready_s: float = 7200, run: dict[str, Any] | None = None, **pool: Any) -> World:
    """A gang on an on-demand machine of a pool that would rather have spot."""
    kinds: dict[str, Any] = {"capacityTypes": ["spot", "on-demand"], "disruption": RETURNS, **pool}
    world = World(FleetBuilder().pool(**kinds).team(quotas={"h100": {GPU: 64}}).queue().build())
    world.machine("m0", ready_at_s=NOW - ready_s)
    world.runs(gang("g"), ("m0", 1), **(run or {}))
    return world


FREEZE = {"freezeWindows": [{"name": "always", "schedule": "* * * * *", "duration": "10m", "blocks": ["Disruption"]}]}


def within(world: World, gpus: int = 64, **pool: Any) -> None:
    """Put another declaration in force."""
    spec = {"disruption": OPEN, **pool}
    world.fleet = FleetBuilder().pool(**spec).team(quotas={"h100": {"nvidia.com/gpu": gpus}}).queue().build()


def standing(machines: int = 1, **pool: Any) -> World:
    world = World(FleetBuilder().build())
    within(world, **pool)
    for n in range(machines):
        world.machine(f"m{n}")
    return world


def at_rest(world: World, rounds: int = 10) -> None:
    """Nothing changes any more, also when time passes (but less than anything expires in)."""
    for _ in range(rounds):
        world.now_s += 30
        assert world.pass_once() == []


# -- idle machines -----------------------------------------------------------------------------------------------------

ANY: dict[str, Any] = {"disruption": OPEN}
Change = Callable[[World], object]


def idle(count: int = 1, *, since_s: float = 100.0, **pool: Any) -> World:
    world = World(small_fleet(**{**ANY, **pool}))
    for n in range(count):
        world.machine(f"m{n}", emptied_at_s=NOW - since_s)
    return world


def of_claim(**facts: Any) -> Change:
    return lambda world: world.claims.__setitem__("m0", replace(world.claims["m0"], **facts))


def gone(world: World) -> dict[str, str]:
    """Claims told to go, with the reason; nothing may be bought."""
    actions = world.disrupted(waits=False)
    assert all(isinstance(it, SaveClaim) for it in actions)
    names = [it.claim.name for it in actions if isinstance(it, SaveClaim)]
    assert len(names) == len(set(names))
    return {
        it.claim.name: it.claim.disruption.reason for it in actions if isinstance(it, SaveClaim) and it.claim.disruption
    }


def with_pool(world: World, **pool: Any) -> None:
    builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
    world.fleet = builder.pool(**pool).team().queue().build()


# -- what a method makes of them --------------------------------------------------------------------------------------

GOES, WAITS, KEEPS = DisruptionOutcome.GOES, DisruptionOutcome.WAITS, DisruptionOutcome.KEEPS
NOTHING = Obstacle.NONE
Row = tuple[str, Callable[[], World], Mapping[str, int], DisruptionOutcome, Obstacle, str]
"""Name, scene, what the method proposes (machines -> how many are bought first), and its verdict on `m0`."""


def proposed(world: World, method: str) -> dict[str, int]:
    """The commands of a method in a pass: machines -> how many are bought first."""
    context = DisruptionContext.of(world.fleet, world.snapshot())
    found = {each.name: each.propose(context) for each in METHODS}[method]
    return {" ".join(claim.name for claim in command.claims): len(command.replacements) for command in found}


def check(method: str, row: Row) -> None:
    """The method proposes what the row says, and explains `m0` as it says."""
    _, scene, commands, outcome, obstacle, words = row
    assert proposed(scene(), method) == commands
    found = said(scene())[method]
    assert (found.outcome, found.obstacle) == (outcome, obstacle), found.message
    assert words in found.message
    assert (outcome is GOES) == any("m0" in names.split() for names in commands)


def told(actions: Iterable[Action]) -> dict[str, str]:
    """Claims told to go, with the reason."""
    saved = (it.claim for it in actions if isinstance(it, SaveClaim))
    return {claim.name: claim.disruption.reason for claim in saved if claim.disruption}


def opened(actions: Iterable[Action]) -> list[tuple[str, str, tuple[str, ...]]]:
    """(instance type, gang, replaces) of every claim asked for."""
    found = [claim for it in actions if isinstance(it, OpenClaims) for claim in it.claims]
    return [(claim.capacity_pool.instance_type, claim.gang, claim.replaces) for claim in found]


def drift_of(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> Drift:
    """How one machine, known to the snapshot or not, differs from its pool."""
    alone = replace(snapshot, claims={claim.name: claim}, index=Index())
    return drifts(fleet, alone).get(claim.name, NO_DRIFT)
