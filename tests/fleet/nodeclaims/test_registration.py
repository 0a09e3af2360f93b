"""Whether a pool's machines join: what claims tell of launches, what of it is remembered, and what it says."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import PatchNode
from fleet.nodeclaims import lifecycle
from fleet.nodeclaims.repair import Registrations, registers, registrations
from fleet.reasons import Reason
from fleet.snapshot import Claim, DaemonOverhead, GangState, NodeDisruption, Pin, RegistrationOutcome
from model.fleet import Fleet
from model.kinds import Toleration
from tests.support.fleets import GPU, NOW, FleetBuilder, gang
from tests.support.world import World

FLEET = FleetBuilder().pool("h100").build()
CHANGED = FleetBuilder().pool("h100", template={"labels": {"team": "x"}}).build()


def outcomes(text: str) -> list[RegistrationOutcome]:
    """One launch a letter, the oldest first: `j` joined, `f` failed."""
    return [RegistrationOutcome(float(at_s), f"m{at_s}", "v", it == "j") for at_s, it in enumerate(text)]


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("", None),
        ("j", True),
        ("f", True),
        ("ff", False),
        ("jjff", False),
        ("fjfj", False),
        ("jjjf", True),
        ("ffjjj", True),
        ("ffjjjj", True),
    ],
)
def test_half_of_the_last_four_are_too_many(text: str, joined: bool | None) -> None:
    assert registers(outcomes(text)) is joined


def told(world: World, *claims: Claim, before: Registrations | None = None, fleet: Fleet = FLEET) -> Registrations:
    world.claims = {it.name: it for it in claims}
    return registrations(before or {}, fleet, world.snapshot())


def launched(world: World, name: str, at_s: float, reason: str = "", **more: Any) -> Claim:
    """A machine that has joined, or was given up for a reason."""
    made = world.machine(name, **more)
    if not reason:
        return replace(made, registered_at_s=at_s)
    return replace(made, registered_at_s=0.0, disruption=NodeDisruption(reason, "x", at_s))


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        ("", [True]),
        (Reason.REGISTRATION_TIMEOUT, [False]),
        (Reason.LAUNCH_TIMEOUT, [False]),
        (Reason.LAUNCH_FAILED, []),  # a shortage says nothing of the pool
        (Reason.DELETED, []),
    ],
)
def test_what_a_claim_tells(reason: str, found: list[bool]) -> None:
    world = World(FLEET)
    assert [it.registered for it in told(world, launched(world, "m", 5.0, reason)).get("h100", ())] == found


def test_a_machine_that_has_joined_and_leaves_has_joined() -> None:
    world = World(FLEET)
    claim = launched(world, "m", 5.0)
    leaving = replace(claim, disruption=NodeDisruption(Reason.REGISTRATION_TIMEOUT, "x", 9.0))
    assert told(world, leaving) == told(world, claim)


def test_nothing_is_counted_twice_and_what_has_gone_is_remembered() -> None:
    world = World(FLEET)
    failed = launched(world, "a", 1.0, Reason.REGISTRATION_TIMEOUT)
    first = told(world, failed)
    assert told(world, failed, before=first) is first
    assert told(world, before=first) is first
    second = told(world, launched(world, "b", 2.0), before=first)
    assert [(it.claim, it.registered) for it in second["h100"]] == [("a", False), ("b", True)]


def test_the_last_four_are_remembered() -> None:
    world = World(FLEET)
    assert [it.claim for it in told(world, *(launched(world, f"m{n}", float(n)) for n in (3, 1, 5, 2, 4)))["h100"]] == [
        "m2",
        "m3",
        "m4",
        "m5",
    ]


@pytest.mark.parametrize("fleet", [CHANGED, FleetBuilder().build()])
def test_a_changed_pool_begins_anew_and_a_removed_one_is_forgotten(fleet: Fleet) -> None:
    world = World(FLEET)
    failed = launched(world, "a", 1.0, Reason.REGISTRATION_TIMEOUT)
    assert told(world, failed, before=told(world, failed), fleet=fleet) == {}


def starting(*daemons: DaemonOverhead, gpus: int, ready: bool = False) -> list[str]:
    """Taints that a machine gets which joins, or has all that it owes, and for which a gang waits."""
    world = World(FLEET)
    claim = world.machine("m", at_s=NOW - 10, registered_at_s=NOW - 5 if ready else 0.0, ready_at_s=0.0)
    if not ready:
        world.claims["m"] = replace(claim, node="")
    node = world.nodes[claim.node]
    world.nodes[claim.node] = replace(node, allocatable={**node.allocatable, GPU: gpus})
    world.gangs["g"] = gang("g", state=GangState.RESERVED, pins=(Pin("main", claim.node, "m", 1),))
    world.daemon_overheads = daemons
    patches = (it for it in lifecycle.decide(FLEET, world.snapshot()) if isinstance(it, PatchNode))
    return [taint.key for patch in patches for taint in patch.add_taints]


ANY = (Toleration(operator="Exists"),)
LABELLED = {"nvidia.com/gpu.deploy.device-plugin": "true"}


@pytest.mark.parametrize(
    ("daemon", "gpus", "kept"),
    [
        pytest.param(None, 0, True, id="nobody else has to come"),
        pytest.param(DaemonOverhead(LABELLED), 0, False, id="one that may bring what it owes"),
        pytest.param(DaemonOverhead(LABELLED), 8, True, id="it owes nothing"),
        pytest.param(DaemonOverhead({}, tolerations=ANY), 0, True, id="one that tolerates everything"),
        pytest.param(DaemonOverhead({"kubernetes.io/arch": "none"}), 0, True, id="one for other nodes"),
    ],
)
def test_a_machine_is_kept_for_its_gang_once_that_keeps_off_nobody_whom_it_needs(
    daemon: DaemonOverhead | None, gpus: int, kept: bool
) -> None:
    daemons = [daemon] if daemon is not None else []
    assert starting(*daemons, gpus=gpus) == (["muster.dev/gang"] if kept else [])
    assert starting(*daemons, gpus=8, ready=True) == ["muster.dev/gang"], "once it owes nothing"
