"""What the tests of the page look at: two teams, machines, gangs that run and wait, and names that bite."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agent.spent import GangMoney, PastMonth
from agent.sync import SyncState
from agent.web.seen import PageWatcher
from fleet.actions import Announce
from fleet.cost.statement import StatementLine
from fleet.snapshot import NodeDisruption
from model.fleet import Fleet
from tests.support.fleets import GPU, NOW, FleetBuilder, capacity_pool, gang, plain_node
from tests.support.world import World

HOSTILE = """<img src=x onerror=alert(1)>'"&\u202e\x1b[31m{{7*7}}</section><script>alert(2)</script>"""
REVISION = "main@sha1:" + "0123456789abcdef" * 2 + "01234567"


def fleet() -> Fleet:
    """Teams `red` and `blue`, sixteen GPUs each, below one."""
    builder = FleetBuilder().pool().pool("cut", instanceTypes=["p4d.24xlarge"]).team("org", quotas={}, namespaces=[])
    for team in ("red", "blue"):
        quotas = {"h100": {GPU: 16}, "cut": {"nvidia.com/mig-1g.5gb": 28}}
        builder.team(team, quotas, parent="org", namespaces=[team], budget={"usdPerMonth": 5000.0})
        builder.queue(f"q-{team}", team, ("h100", "cut"))
    return builder.priority("high", 100).build()


def world(machines: int = 4) -> World:
    """Red runs on three machines, one of them blue's share; blue runs on one and waits for another."""
    made = World(fleet())
    for number in range(machines):
        made.machine(f"m{number}")
    for number in range(3):
        made.runs(gang(f"red-{number}", queue="q-red", namespace="red"), (f"m{number}", 1), admitted_at_s=NOW - 500)
    made.runs(gang("blue-0", queue="q-blue", namespace="blue"), ("m3", 1), admitted_at_s=NOW - 400)
    made.waits(gang("blue-1", queue="q-blue", namespace="blue", count=2))
    made.nodes["stranger"] = plain_node("stranger", {GPU: 4, "cpu": 1000})
    made.shortages[capacity_pool()] = NOW + 300
    made.spent_usd |= {"red": 4000.0, "blue": 12.5}
    leaving = NodeDisruption("Drifted", "its pool declares another image", NOW - 5)
    made.claims["m2"] = replace(made.claims["m2"], disruption=leaving)
    return made


def hostile(made: World) -> World:
    """The same with words that others write, as bad as they can be."""
    bad = gang("bad", queue="q-red", namespace="red", priority_class=HOSTILE)
    bad = replace(bad, job=replace(bad.job, name=HOSTILE, kind=HOSTILE), workload=HOSTILE)
    made.waits(replace(bad, message=HOSTILE, reason=HOSTILE))
    node = plain_node("evil", {GPU: 1})
    made.nodes[HOSTILE] = replace(node, name=HOSTILE, labels={"node.kubernetes.io/instance-type": HOSTILE})
    return made


_BOUGHT = {"claim": "m0", "pool": "h100", "capacity": "on-demand", "usd_h": 98.0, "gang": "uid-red-0"}
_ADMITTED = {"event": "gang", "state": "Admitted", "reason": "Admitted"}
JOURNAL: tuple[tuple[float, Mapping[str, Any]], ...] = (
    (NOW - 600, {"event": "queued", "gang": "red/red-0", "queue": "q-red", "priority": 0}),
    (NOW - 590, {**_ADMITTED, "gang": "red/red-0", "message": "it fits"}),
    (NOW - 580, {"event": "claim", **_BOUGHT}),
    (NOW - 500, {**_ADMITTED, "gang": "blue/blue-0", "message": "secret of blue"}),
    (NOW - 300, {"event": "returned", "instances": ["i-1", "i-2"], "reason": "Empty"}),
)


MONTHS = (
    PastMonth("2027-01", NOW - 86_400, NOW, {"red": StatementLine(10**9, 10**8, 10**7, 3600.0)}, ()),
    PastMonth(
        "2026-12",
        0.0,
        NOW,
        {"red": StatementLine(2_500_000_000, 0, 0, 7200.0), "blue": StatementLine(40_000_000, 0, 0, 3600.0)},
        (GangMoney("red", "red/red-of-old", 2400.0), GangMoney("blue", "blue/blue-of-old", 40.0)),
    ),
)


def watching(
    made: World, state: SyncState | None = None, journal: Iterable[tuple[float, Mapping[str, Any]]] = JOURNAL
) -> PageWatcher:
    """A watcher that has seen the world once."""
    watcher = PageWatcher()
    said = state or SyncState(applied=REVISION, outcome="Applied", message=f"{REVISION} is in force", author="Ada")
    watcher.lead(lambda: said, journal, months=lambda: MONTHS)
    heard: list[Announce] = []
    say = watcher.hearing(heard.append, lambda: NOW - 100)
    for each in made.gangs.values():
        say(Announce(each.job, "Admitted", f"{each.job.name} may start"))
    watcher.turned(made.fleet, made.snapshot())
    assert len(heard) == len(made.gangs), "who listened before goes on listening"
    return watcher


class HandClock:
    """A clock that stands still until somebody moves it."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class EagerClock(HandClock):
    """A clock that runs so fast that nobody waits for the page's share of time."""

    def __call__(self) -> float:
        self.now_s += 100.0
        return self.now_s
