"""Topology: eight machines of one GPU in two zones of two racks, and pods that want to be near others or not."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.reference.session.decide import decide
from tests.reference.session.policy import Policy, SessionStage
from tests.reference.session.values import (
    Crew,
    CrewGroup,
    Decision,
    Neighbour,
    SessionMachine,
    SessionTopology,
    Squad,
    Within,
)
from tests.support.session import fair, job, machine, pods

ALLOCATE = Policy(stages=(SessionStage.ALLOCATE,))
ZONES = {f"n{number}": "z1" if number < 5 else "z2" for number in range(1, 9)}
RACKS = {f"n{number}": f"r{(number + 1) // 2}" for number in range(1, 9)}
TOPOLOGY = SessionTopology("dc", ("zone", "rack"), (ZONES, RACKS))
MACHINES = [machine(name, 1, {"zone": ZONES[name], "rack": RACKS[name]}) for name in ZONES]


def within(required: str = "", preferred: str = "") -> Within:
    return Within("dc", required, preferred)


def squad(count: int, where: Within | None, at_least: int | None = None) -> Squad:
    crew = Crew("", pods("x", count), count if at_least is None else at_least)
    return Squad("x", "a", CrewGroup("", (crew,), 1, within=where))


def busy(*names: str) -> list[Squad]:
    """Machines that are taken, by work that stays."""
    return [job(f"busy-{name}", on=[name], preemptible=False) for name in names]


def domains(decision: Decision, of: Mapping[str, str], crew: str = "x") -> set[str]:
    return {of[placement.node] for name, placement in decision.bound.items() if name.startswith(f"{crew}-")}


@pytest.mark.parametrize(
    ("count", "where", "taken", "zones", "racks"),
    [
        pytest.param(2, within(required="rack"), (), {"z1"}, {"r1"}, id="one rack"),
        pytest.param(3, within(required="rack"), (), set(), set(), id="too many for a rack"),
        pytest.param(2, within(required="rack"), ("n1",), {"z1"}, {"r2"}, id="in the zone that is fuller already"),
        pytest.param(3, within(required="zone"), ("n1", "n2"), {"z2"}, {"r3", "r4"}, id="one zone"),
        pytest.param(5, within(required="zone"), (), set(), set(), id="too many for a zone"),
        pytest.param(5, within(preferred="zone"), (), {"z1", "z2"}, None, id="preferred, not required"),
        pytest.param(3, within(preferred="rack"), (), {"z1"}, {"r1", "r2"}, id="then the next wider one"),
        pytest.param(2, within("zone", "rack"), ("n1", "n3", "n5"), {"z2"}, {"r4"}, id="both: a rack in some zone"),
        pytest.param(2, within("zone", "rack"), ("n1", "n3", "n5", "n7"), {"z1"}, {"r1", "r2"}, id="both: a zone"),
        pytest.param(1, within(required="row"), (), set(), set(), id="a level nobody knows"),
        pytest.param(1, Within("other", "rack"), (), set(), set(), id="a topology nobody knows"),
    ],
)
def test_gangs(count: int, where: Within, taken: tuple[str, ...], zones: set[str], racks: set[str] | None) -> None:
    found = decide(MACHINES, [squad(count, where), *busy(*taken)], fair(a=8), ALLOCATE, [TOPOLOGY])
    assert domains(found, ZONES) == zones
    if racks is not None:
        assert domains(found, RACKS) == racks


def test_surplus_stays_where_the_core_is() -> None:
    running = Squad("x", "a", CrewGroup("", (Crew("", pods("x", 4, on=["n5"]), 1),), 1, within=within(required="zone")))
    found = decide(MACHINES, [running, *busy("n8")], fair(a=8), ALLOCATE, [TOPOLOGY])
    assert {name: placement.node for name, placement in found.bound.items()} == {"x-1": "n6", "x-2": "n7"}


def test_a_machine_without_a_label_is_in_no_domain() -> None:
    topology = SessionTopology("dc", ("zone",), ({"n2": "z1"},))
    found = decide(MACHINES[:2], [squad(1, within(required="zone"))], fair(a=8), ALLOCATE, [topology])
    assert found.bound["x-0"].node == "n2"


def test_every_part_of_a_gang_has_its_own_domain() -> None:
    parts = tuple(Crew(name, pods(name, 2), 2, within(required="rack")) for name in ("x", "y"))
    whole = Squad("gang", "a", CrewGroup("", parts, 2, within=within(required="zone")))
    found = decide(MACHINES, [whole, *busy("n1")], fair(a=8), ALLOCATE, [TOPOLOGY])
    assert domains(found, ZONES) == {"z2"} == domains(found, ZONES, "y")
    assert domains(found, RACKS) | domains(found, RACKS, "y") == {"r3", "r4"}


def test_room_is_made_in_one_domain() -> None:
    """Three of five victims would be enough in number, but not in one rack."""
    running = [job(f"v{name}", "b", on=[name], created=number) for number, name in enumerate(ZONES)]
    found = decide(
        MACHINES,
        [squad(2, within(required="rack")), *running],
        fair(a=8, b=0),
        Policy(stages=(SessionStage.RECLAIM,)),
        [TOPOLOGY],
    )
    assert {RACKS[placement.node] for placement in found.nominated.values()} == {"r4"}
    assert {eviction.squad for eviction in found.evicted} == {"vn7", "vn8"}


def labelled(name: str, node: str = "", *, app: str, wish: Neighbour | None = None) -> Squad:
    pod = replace(pods(name, 1, on=[node] if node else [])[0], labels={"app": app}, neighbours=(wish,) if wish else ())
    return Squad(name, "a", CrewGroup("", (Crew("", (pod,), 1),), 1))


WEB = {"app": frozenset({"web"})}
EVERYWHERE = set(ZONES)


@pytest.mark.parametrize(
    ("others", "asker", "nodes"),
    [
        pytest.param(
            [labelled("w", "n5", app="web")],
            labelled("x", app="db", wish=Neighbour("zone", WEB)),
            {"n6", "n7", "n8"},
            id="near another",
        ),
        pytest.param([], labelled("x", app="db", wish=Neighbour("zone", WEB)), set(), id="near nobody"),
        pytest.param([], labelled("x", app="web", wish=Neighbour("zone", WEB)), EVERYWHERE, id="the first of its own"),
        pytest.param(
            [labelled("w", "n5", app="web")],
            labelled("x", app="db", wish=Neighbour("zone", WEB, apart=True)),
            {"n1", "n2", "n3", "n4"},
            id="apart from another",
        ),
        pytest.param(
            [labelled("w", "n5", app="db", wish=Neighbour("zone", WEB, apart=True))],
            labelled("x", app="web"),
            {"n1", "n2", "n3", "n4"},
            id="another wants to be apart from it",
        ),
    ],
)
def test_neighbours(others: list[Squad], asker: Squad, nodes: set[str]) -> None:
    """Every machine outside `nodes` is ruled out, so that with all of those taken it finds no place."""

    def node(given: list[SessionMachine]) -> str:
        found = decide(given, [*others, asker], fair(a=8), ALLOCATE, [TOPOLOGY]).bound.get("x-0")
        return found.node if found else ""

    found = set()
    given = MACHINES
    while place := node(given):
        found.add(place)
        given = [replace(one, open=False) if one.name == place else one for one in given]
    assert found == nodes
