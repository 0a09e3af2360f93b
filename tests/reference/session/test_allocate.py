"""What starts on idle machines, and where. Scenes are small enough to be checked by eye."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.reference.session.decide import decide
from tests.reference.session.fair import FairLedger, FairQueue
from tests.reference.session.ledger import SessionLedger
from tests.reference.session.policy import Policy, SessionStage
from tests.reference.session.values import (
    Crew,
    CrewGroup,
    Decision,
    GpuShare,
    PodState,
    SessionMachine,
    SessionPod,
    Squad,
)
from tests.support.session import GPU, fair, job, machine, machines, pods, template

ALLOCATE = Policy(stages=(SessionStage.ALLOCATE,))


def started(decision: Decision) -> set[str]:
    """The squads of which pods were bound."""
    return {name.rsplit("-", 1)[0] for name in decision.bound}


def counts(decision: Decision) -> dict[str, int]:
    """How many pods of each crew were bound."""
    found: dict[str, int] = {}
    for name in decision.bound:
        crew = name.rsplit("-", 1)[0]
        found[crew] = found.get(crew, 0) + 1
    return found


@pytest.mark.parametrize(
    ("squads", "expected"),
    [
        pytest.param([job("x", count=3)], {"x": 3}, id="all of it"),
        pytest.param([job("x", count=5)], {}, id="or nothing"),
        pytest.param([job("x", count=6, at_least=2)], {"x": 4}, id="surplus as far as it goes"),
        pytest.param([job("x", count=2, gpus=3)], {}, id="each pod on one machine"),
        pytest.param(
            [job("x", count=6, at_least=1), job("y", count=2, created=1)],
            {"x": 2, "y": 2},
            id="minima before surplus",
        ),
        pytest.param(
            [job("x", count=3), job("y", count=3, priority=1, created=1)], {"y": 3}, id="the higher priority first"
        ),
        pytest.param([job("x", count=3, created=1), job("y", count=3)], {"y": 3}, id="then the older"),
        pytest.param([job("x", count=5), job("y", count=3, created=1)], {"y": 3}, id="who does not fit is no obstacle"),
        pytest.param([job("x", "nobody")], {}, id="a queue that is not known"),
        pytest.param([replace(job("x"), leaving=True)], {}, id="who is being deleted"),
        pytest.param([replace(job("x"), queued=False)], {}, id="who has not passed the gate"),
        pytest.param([job("x", count=2, at_least=3)], {}, id="too few pods for the minimum"),
        pytest.param([job("x", count=3, at_least=3, on=["n1", "n1"])], {"x": 1}, id="what is missing of a broken gang"),
    ],
)
def test_gangs(squads: list[Squad], expected: dict[str, int]) -> None:
    assert counts(decide(machines(2, gpus=2), squads, fair(a=4), ALLOCATE)) == expected


LEADER, WORKERS = Crew("leader", pods("leader", 2), 1), Crew("worker", pods("worker", 4), 3)


@pytest.mark.parametrize(
    ("gpus", "root", "expected"),
    [
        pytest.param(4, CrewGroup("", (LEADER, WORKERS), 2), {"leader": 1, "worker": 3}, id="the minimum of each role"),
        pytest.param(3, CrewGroup("", (LEADER, WORKERS), 2), {}, id="one short"),
        pytest.param(
            3, CrewGroup("", (LEADER, WORKERS), 1), {"leader": 2}, id="one role suffices; the other stays whole"
        ),
        pytest.param(4, CrewGroup("", (LEADER, WORKERS), 2, pods_at_least=5), {}, id="roles and pods together"),
        pytest.param(
            5,
            CrewGroup("", (LEADER, WORKERS), 2, pods_at_least=5),
            {"leader": 2, "worker": 3},
            id="one more of any role",
        ),
        pytest.param(
            4,
            CrewGroup("", (CrewGroup("one", (LEADER,), 1), CrewGroup("two", (WORKERS,), 1)), 2),
            {"leader": 1, "worker": 3},
            id="groups of groups",
        ),
        pytest.param(
            4,
            CrewGroup("", (CrewGroup("one", (Crew("x", pods("x", 3), 3),), 1), CrewGroup("two", (WORKERS,), 1)), 1),
            {"x": 3},
            id="whole groups only",
        ),
    ],
)
def test_roles_and_groups(gpus: int, root: CrewGroup, expected: dict[str, int]) -> None:
    assert counts(decide(machines(1, gpus), [Squad("x", "a", root)], fair(a=8), ALLOCATE)) == expected


@pytest.mark.parametrize(
    ("ledger", "squads", "expected"),
    [
        pytest.param(
            fair(a=2, b=2), [job("x", count=4, at_least=1), job("y", "b", 2, created=9)], {"x": 2, "y": 2}, id="shares"
        ),
        pytest.param(fair(a=0, b=4), [job("x", count=4)], {"x": 4}, id="idle machines are for everybody"),
        pytest.param(
            FairLedger([FairQueue("a", limit={GPU: 3})]),
            [job("x", count=4, at_least=1)],
            {"x": 3},
            id="up to the limit",
        ),
        pytest.param(
            FairLedger([FairQueue("top", limit={GPU: 3}), FairQueue("a", "top")]),
            [job("x", count=4)],
            {},
            id="the limit of the queue above",
        ),
        pytest.param(
            fair(a=2), [job("x", count=4, at_least=1, preemptible=False)], {"x": 2}, id="firm work only within quota"
        ),
    ],
)
def test_queues(ledger: SessionLedger, squads: list[Squad], expected: dict[str, int]) -> None:
    assert counts(decide(machines(1, gpus=4), squads, ledger, ALLOCATE)) == expected


def with_pod(**more: object) -> Squad:
    """A squad of one pod that is special in some way."""
    pod = replace(pods("x", 1)[0], **more)  # type: ignore[arg-type]
    return Squad("x", "a", CrewGroup("", (Crew("", (pod,), 1),), 1))


@pytest.mark.parametrize(
    ("given", "squads", "node"),
    [
        pytest.param([machine("n1", 4), machine("n2", 2)], [job("x", gpus=2)], "n2", id="the fullest machine"),
        pytest.param([machine("n1", 4), machine("n2", 0)], [job("x", gpus=0)], "n2", id="no GPUs, no GPU machine"),
        pytest.param(
            [machine("n1", 2), replace(machine("n2", 4), rank=-1)], [job("x")], "n2", id="the lower rank comes first"
        ),
        pytest.param([replace(machine("n1"), open=False), machine("n2")], [job("x")], "n2", id="closed machines"),
        pytest.param(
            [machine("n1", 4), machine("n2", 4)],
            [with_pod(template=replace(template(), node_selector={"zone": "b"}))],
            None,
            id="nowhere allowed",
        ),
        pytest.param(
            [machine("n1", 4), machine("n2", 4, {"zone": "b"})],
            [with_pod(template=replace(template(), node_selector={"zone": "b"}))],
            "n2",
            id="by selector",
        ),
        pytest.param(
            [machine("n1", 0, more={"nvidia.com/mig-1g.5gb": 1}), machine("n2", 4)],
            [with_pod(template=template(0, **{"nvidia.com/mig-1g.5gb": 1}))],
            "n1",
            id="a MIG instance is counted like any resource",
        ),
    ],
)
def test_where(given: Sequence[SessionMachine], squads: list[Squad], node: str | None) -> None:
    placement = decide(given, squads, fair(a=8), ALLOCATE).bound.get("x-0")
    assert (placement and placement.node) == node


def part(name: str, millionths: int = 500_000, memory_mib: int = 0, devices: int = 1) -> Squad:
    """A job that asks for a part of one GPU or several."""
    share = GpuShare(0 if memory_mib else millionths, memory_mib, devices)
    pod = SessionPod(f"{name}-0", template(0), gpu=share)
    return Squad(name, "a", CrewGroup("", (Crew("", (pod,), 1),), 1))


@pytest.mark.parametrize(
    ("squads", "devices"),
    [
        pytest.param([part("x"), part("y")], {"x": {"0"}, "y": {"0"}}, id="two halves share a GPU"),
        pytest.param([part("x"), part("y", 600_000)], {"x": {"0"}, "y": {"1"}}, id="more than a half does not"),
        pytest.param([part("x"), job("w", gpus=2, created=-1)], {"w": set()}, id="no GPU left to share"),
        pytest.param([part("x"), job("w", created=-1)], {"w": set(), "x": {"0"}}, id="whole ones are not shared"),
        pytest.param([part("x", devices=2)], {"x": {"0", "1"}}, id="a half of each of two"),
        pytest.param([part("x", devices=3)], {}, id="there are only two"),
        pytest.param([part("x", memory_mib=30_000), part("y", 600_000)], {"x": {"0"}, "y": {"0"}}, id="by memory"),
        pytest.param([part("x", memory_mib=90_000)], {}, id="more memory than a GPU has"),
    ],
)
def test_parts_of_gpus(squads: list[Squad], devices: dict[str, set[str]]) -> None:
    node = replace(machine("n1", 2), gpu_memory_mib=80_000)
    found = decide([node], squads, fair(a=8), ALLOCATE).bound
    assert {name.removesuffix("-0"): set(placement.devices) for name, placement in found.items()} == devices


@pytest.mark.parametrize(
    ("state", "bound", "nominated"),
    [
        pytest.param(PodState.TERMINATING, [], ["x-0"], id="room that will be free"),
        pytest.param(PodState.STUCK, [], [], id="who does not end keeps the room"),
        pytest.param(PodState.SUCCEEDED, ["x-0"], [], id="who has ended does not"),
    ],
)
def test_room_of_others(state: PodState, bound: list[str], nominated: list[str]) -> None:
    other = replace(pods("y", 1)[0], state=state, node="n1")
    squads = [job("x"), Squad("y", "a", CrewGroup("", (Crew("", (other,), 1),), 1))]
    decision = decide(machines(1, gpus=1), squads, fair(a=8), ALLOCATE)
    assert (list(decision.bound), list(decision.nominated)) == (bound, nominated)


def test_work_that_asks_for_nothing_waits_for_its_stage() -> None:
    nothing = with_pod(template=replace(template(), requests={}))
    backfill = Policy(stages=(SessionStage.ALLOCATE, SessionStage.BACKFILL), backfill_only=True)
    only_allocate = Policy(stages=(SessionStage.ALLOCATE,), backfill_only=True)
    assert started(decide(machines(1), [nothing], fair(a=8), backfill)) == {"x"}
    assert started(decide(machines(1), [nothing], fair(a=8), only_allocate)) == set()
