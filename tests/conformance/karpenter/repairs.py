"""`node-repair`: machines that are not well, and pools whose launches fail."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isinf
from typing import Any

from fleet.actions import SaveClaim
from fleet.nodeclaims import lifecycle
from fleet.nodeclaims.registration import REGISTRATION_TIMEOUT_S
from fleet.nodeclaims.repair import GATE_AGAIN_S, look_again_s, registers, registrations, too_many
from fleet.reasons import Reason
from fleet.snapshot import NodeCondition, NodeDisruption
from model.kinds import NEVER, Repair
from tests.conformance.cases import Case
from tests.support.fleets import FleetBuilder
from tests.support.world import World

Given = Mapping[str, Any]
USUAL = {"type": "BadNode", "status": "False", "toleration_minutes": 30}
MINUTE_S = 60.0
NODES = 10
_STATUS = {True: "Healthy", False: "Unhealthy", None: "Unknown"}


def run(case: Case) -> dict[str, Any]:
    """The last launches, a pool of which many are unwell, or one machine with its complaints."""
    given = case["given"]
    if "ring" in given:
        return _launches(given["ring"])
    if "unhealthy" in given:
        return _gate(given)
    if "both_bad_for_minutes" in given:
        return _complaints(given)
    return _machine(given)


def _launches(ring: Sequence[bool]) -> dict[str, Any]:
    """One launch after the other, each of which joins or is given up; the next begins when its claim is gone."""
    world, told = _world(0, [USUAL]), dict[str, Any]()
    for number, joins in enumerate(ring):
        world.now_s += REGISTRATION_TIMEOUT_S
        given_up = NodeDisruption(Reason.REGISTRATION_TIMEOUT, "x", world.now_s)
        claim = world.machine(f"m{number}")
        world.claims = {claim.name: claim if joins else replace(claim, registered_at_s=0.0, disruption=given_up)}
        told = dict(registrations(told, world.fleet, world.snapshot()))
    joined = [registers(outcomes) for outcomes in told.values()]
    return {"status": _STATUS[joined[0] if joined else None]}


def _gate(given: Given) -> dict[str, Any]:
    machines = given.get("nodes_in_pool", given.get("standalone_nodes", 0))
    closed = too_many(given["unhealthy"], machines)
    if "nodes_in_pool" in given:
        world = _world(machines, [USUAL])
        for number in range(given["unhealthy"]):
            _complain(world, f"m{number}", {"since_minutes": 60})
        assert bool(_told(world)) is not closed
    return {"deleted": not closed, "requeue_minutes": GATE_AGAIN_S / MINUTE_S if closed else 0}


def _complaints(given: Given) -> dict[str, Any]:
    policies = [_repair(each) for each in given["policies"]]
    for_s = given["both_bad_for_minutes"] * MINUTE_S
    conditions = {each.condition: NodeCondition("False", -for_s) for each in policies}
    wait_s = look_again_s(policies, conditions, 0.0)
    return {"requeue_minutes": None if isinf(wait_s) else wait_s / MINUTE_S}


def _machine(given: Given) -> dict[str, Any]:
    policies = given.get("policies") or [given.get("policy", USUAL)]
    world = _world(NODES, policies, given.get("budgets", ()))
    _complain(world, "m0", given["condition"])
    if given.get("node_do_not_disrupt"):
        node = world.claims["m0"].node
        world.nodes[node] = replace(world.nodes[node], do_not_disrupt=given["node_do_not_disrupt"])
    existing = given.get("existing_termination_timestamp_minutes")
    if existing is not None:
        ends_s = world.now_s + existing * MINUTE_S
        disruption = NodeDisruption("Drifted", "x", world.now_s - 1, ends_s)
        world.claims["m0"] = replace(world.claims["m0"], deleting=True, disruption=disruption)
    told = _told(world)
    deadline_s = told.get("m0")
    return {
        "deleted": "m0" in told or existing is not None,
        "termination_timestamp": "now" if deadline_s == world.now_s else "existing" if existing is not None else None,
    }


def _world(count: int, policies: list[Given], budgets: Any = ()) -> World:
    repair = [_repair(each).model_dump(mode="json") for each in policies]
    given = [{**each, "nodes": int(each["nodes"])} for each in budgets]
    disruption = {"disruption": {"budgets": given}} if given else {}
    world = World(FleetBuilder().pool(repair=repair, **disruption).build())
    for number in range(count):
        world.machine(f"m{number}")
    return world


def _repair(given: Given) -> Repair:
    status = given.get("status", "False")
    return Repair(condition=given["type"], statuses=(status,), after=given["toleration_minutes"] * MINUTE_S)


def _complain(world: World, name: str, given: Given) -> None:
    told = {**USUAL, **given}
    condition = NodeCondition(told["status"], world.now_s - told["since_minutes"] * MINUTE_S)
    node = world.claims[name].node
    world.nodes[node] = replace(world.nodes[node], conditions={told["type"]: condition})


def _told(world: World) -> dict[str, float]:
    """Claim -> until when it may take, of what is told to leave or to hurry."""
    return {
        action.claim.name: action.claim.disruption.deadline_s if action.claim.disruption else NEVER
        for action in lifecycle.decide(world.fleet, world.snapshot())
        if isinstance(action, SaveClaim) and action.claim.disruption
    }
