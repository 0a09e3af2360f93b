"""What differs between two revisions."""

from typing import Any

import pytest

from fleet.plan.changes import PlannedChange, declared_changes
from model.fleet import Fleet
from tests.support.fleets import GPU, FleetBuilder


def fleet(**change: Any) -> Fleet:
    builder = (
        FleetBuilder().pool(**change.get("pool", {})).team(**change.get("team", {})).queue(**change.get("queue", {}))
    )
    if change.get("policy"):
        builder.policy(**change["policy"])
    return builder.build()


def lines(changes: list[PlannedChange]) -> list[str]:
    return [
        f"{it.verb} {it.address}" + "".join(f" {f.path}: {f.before} -> {f.after}" for f in it.fields) for it in changes
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {}, []),
        ({}, {"pool": {"weight": 3}}, ["update nodepool/h100 spec.weight: None -> 3"]),
        (
            {"pool": {"limits": {"nodes": 2}}},
            {"pool": {"limits": {"nodes": 5}, "zones": ["x"]}},
            ["update nodepool/h100 spec.limits.nodes: 2 -> 5 spec.zones: None -> ['x']"],
        ),
        (
            {"team": {"quotas": {"h100": {GPU: 8}}}},
            {"team": {"quotas": {"h100": {GPU: 4}}}},
            [f"update team/t spec.quotas.h100.guaranteed.{GPU}: 8 -> 4"],
        ),
        ({}, {"queue": {"stopPolicy": "Hold"}}, ["update queue/q spec.stopPolicy: None -> Hold"]),
        (
            {},
            {"policy": {"guardRails": {"maxNodesAdded": 3}}},
            ["update fleetpolicy/policy spec: None -> {'guardRails': {'maxNodesAdded': 3}}"],
        ),
    ],
)
def test_updates(before: dict[str, Any], after: dict[str, Any], expected: list[str]) -> None:
    assert lines(declared_changes(fleet(**before), fleet(**after))) == expected


def test_creations_and_deletions_are_sorted_by_address_and_leave_out_implied_flavors() -> None:
    before = FleetBuilder().pool("old").team().queue(flavors=["old"]).build()
    after = FleetBuilder().pool("new").flavor("any", nodePools=["new"]).team().priority("p", 1).queue(flavors=["any"])
    assert lines(declared_changes(before, after.build())) == [
        "create flavor/any",
        "create nodepool/new",
        "delete nodepool/old",
        "create priorityclass/p",
        "update queue/q spec.flavors: ['old'] -> ['any']",
    ]


@pytest.mark.parametrize("turned", [False, True])
def test_a_fleet_against_nothing(turned: bool) -> None:
    pair = (fleet(), Fleet()) if turned else (Fleet(), fleet())
    changes = declared_changes(*pair)
    assert [it.address for it in changes] == ["nodepool/h100", "queue/q", "team/t"]
    assert {it.verb for it in changes} == {"delete" if turned else "create"}
    assert all((it.after is None) is turned for it in changes)


def test_the_order_of_declaration_does_not_matter() -> None:
    one = FleetBuilder().pool("a").pool("b").team("x").team("y").build()
    other = FleetBuilder().team("y").pool("b").team("x").pool("a").build()
    assert declared_changes(one, other) == []
