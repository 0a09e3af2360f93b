"""The quota tree at one glance: use, what is borrowed and who lends it, who waits and who holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.explain.quota_tree import QuotaRow, quota_rows
from tests.support.fleets import GPU, FleetBuilder, gang
from tests.support.world import World


def world(used: dict[str, int], quota: int = 16, lending: dict[str, int] | None = None) -> World:
    """Teams of sixteen GPUs below one; each uses so many machines of eight."""
    builder = FleetBuilder().pool().team("org", quotas={}, namespaces=[])
    for team in used:
        cell = {"guaranteed": {GPU: quota}} | (
            {"lendingLimit": {GPU: (lending or {})[team]}} if team in (lending or {}) else {}
        )
        builder.team(team, {"h100": cell}, parent="org", namespaces=[team]).queue(f"q{team}", team)
    made = World(builder.build())
    for team, machines in used.items():
        for number in range(machines):
            made.machine(f"{team}{number}")
            made.runs(gang(f"{team}{number}", queue=f"q{team}", namespace=team), (f"{team}{number}", 1))
    return made


def rows(made: World) -> dict[str, QuotaRow]:
    return {row.name: row for row in quota_rows(made.fleet, made.snapshot())}


def test_the_tree_is_in_order_with_its_depths() -> None:
    found = rows(world({"a": 1, "b": 0}))
    assert [(row.path, row.depth, row.is_queue) for row in found.values()] == [
        ("/org", 0, False),
        ("/org/a", 1, False),
        ("/org/a/qa", 2, True),
        ("/org/b", 1, False),
        ("/org/b/qb", 2, True),
    ]


@pytest.mark.parametrize(
    ("used", "lending", "expected"),
    [
        ({"a": 2, "b": 1}, {}, {"a": (16, 0, 0), "b": (8, 0, 0)}),
        ({"a": 3, "b": 1}, {}, {"a": (24, 8, 0), "b": (8, 0, 8)}),
        ({"a": 4, "b": 0}, {}, {"a": (32, 16, 0), "b": (0, 0, 16)}),
        ({"a": 4, "b": 0, "c": 0}, {}, {"a": (32, 16, 0), "b": (0, 0, 8), "c": (0, 0, 8)}),
        ({"a": 3, "b": 0, "c": 0}, {"b": 0}, {"a": (24, 8, 0), "b": (0, 0, 0), "c": (0, 0, 8)}),
    ],
)
def test_what_is_borrowed_somebody_lends(
    used: dict[str, int], lending: dict[str, int], expected: dict[str, tuple[int, int, int]]
) -> None:
    found = rows(world(used, lending=lending))
    shares = {team: found[team].shares[0] for team in used}
    assert {team: (it.used, it.borrowed, it.lent) for team, it in shares.items()} == expected


@given(st.lists(st.integers(0, 4), min_size=2, max_size=5))
def test_nobody_lends_what_nobody_borrows(machines: list[int]) -> None:
    """As long as there is quota for all that runs, what is lent is what is borrowed."""
    used = {chr(ord("a") + number): count for number, count in enumerate(machines)}
    shares = {team: row.shares[0] for team, row in rows(world(used)).items() if team in used and row.shares}
    borrowed, lent = sum(it.borrowed for it in shares.values()), sum(it.lent for it in shares.values())
    free = sum(max(0, it.quota - it.used) for it in shares.values())
    assert lent == min(borrowed, free)
    assert all(it.lent <= max(0, it.quota - it.used) for it in shares.values())


def test_who_waits_and_who_holds() -> None:
    made = world({"a": 2})
    made.waits(gang("late", queue="qa", namespace="a", created_s=200.0))
    made.waits(gang("early", queue="qa", namespace="a", created_s=100.0))
    made.waits(gang("high", queue="qa", namespace="a", priority=9))
    made.waits(gang("lost", queue="nowhere", namespace="a"))
    found = rows(made)["qa"]
    assert [it.job.name for it in found.waiting] == ["high", "early", "late"]
    assert [it.job.name for it in found.holders] == ["a0", "a1"]
