"""Which pods of a StatefulSet are of its gang, as rules: numbers, marks, and what holds capacity."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.snapshot import STATEFUL_SET, Gang, GangState, GroupMember, Hold, Job, JobRef, Numbering, Pod, PodSet
from fleet.snapshot.constraints import EphemeralClaim
from fleet.snapshot.gangs import POD, workload_name
from fleet.snapshot.numbered_pods import numbered_pods
from fleet.snapshot.works import works
from model.index import Index
from tests.support.fleets import NOW, amounts, gang

ASKED = PodSet("main", 3, amounts(gpu=1))
REF = JobRef("apps/v1", STATEFUL_SET, "ns", "web", "s")
MARK = workload_name(REF)
NOBODY: Mapping[str, Gang] = MappingProxyType({})


def stateful(replicas: int = 3, *, first: int = 0, queue: str = "q") -> Job:
    return Job(
        ref=REF,
        resource_version="",
        queue=queue,
        priority_class="",
        suspended=True,
        pod_sets=(replace(ASKED, count=replicas),),
        created_at_s=NOW,
        hold=Hold.PODS,
        numbering=Numbering(first),
    )


def pod(text: str) -> Pod:
    """`3` waits, `3!` is of the gang of its set, `3-` the same and has ended, `3?` waits and is a gang of its own."""
    number = text.rstrip("!-?")
    member = GroupMember("", 1, replace(ASKED, name="role-1", count=1), "q", NOW)
    made = Pod(f"uid-{number}", "ns", f"web-{number}", "", "Pending", amounts(gpu=1), gated=True, job_uid="s")
    made = replace(made, member=member, owner_job="s", pod_set="role-1")
    if text[-1] in "!-":
        phase: Any = "Running" if text.endswith("!") else "Failed"
        made = replace(made, workload=MARK, gated=False, node="n", phase=phase)
    return made


def admitted(count: int, state: GangState = GangState.ADMITTED) -> Gang:
    return replace(gang("web"), uid="s", job=REF, state=state, pod_sets=(replace(ASKED, count=count),))


def alone(text: str) -> Gang:
    """The gang of a pod that holds capacity by itself."""
    found = pod(text)
    return replace(gang(found.name), uid=found.uid, job=JobRef("v1", POD, "ns", found.name, found.uid), state=RESERVED)


RESERVED, ADMITTED, EVICTING = GangState.RESERVED, GangState.ADMITTED, GangState.EVICTING


class Found(NamedTuple):
    own: str
    single: str
    asks: int
    going: int = 0


def divided(job: Job, pods: str, *gangs: Gang) -> tuple[Found, Job]:
    seen = tuple(map(pod, pods.split()))
    by_key = {f"{it.namespace}/{it.workload}/{it.uid}": it for it in (*gangs, *map(alone, _alone(pods)))}
    found = numbered_pods(Index(), {"s": job}, {"s": seen} if seen else {}, by_key)
    read = found.jobs["s"]
    single = sorted(it.name for uid, pods_of in found.job_pods.items() if uid != "s" for it in pods_of)
    own = sorted(it.name for it in found.job_pods.get("s", ()))
    going = read.numbering.going if read.numbering else -1
    asks = sum(it.count for it in read.pod_sets) if read.queue else 0
    return Found(_numbers(own), _numbers(single), asks, going), read


def _alone(pods: str) -> list[str]:
    return [text for text in pods.split() if text.endswith("?")]


def _numbers(names: list[str]) -> str:
    return " ".join(name.removeprefix("web-") for name in names)


CASES: list[tuple[str, Job, str, tuple[Gang, ...], Found]] = [
    ("the first waits", stateful(), "0", (), Found("0", "", 3)),
    ("all wait", stateful(), "0 1 2", (), Found("0 1 2", "", 3)),
    ("none is there, and nothing is known of it", stateful(), "", (), Found("", "", 0)),
    ("none is there just now", stateful(), "", (admitted(3),), Found("", "", 3)),
    ("some run", stateful(), "0! 1", (admitted(3),), Found("0 1", "", 3)),
    ("it names no queue", stateful(queue=""), "0 1", (), Found("", "0 1", 0)),
    ("it names none any more", stateful(queue=""), "0! 1", (admitted(3),), Found("0", "1", 0)),
    ("more replicas while it waits", stateful(5), "0 1 2 3 4", (), Found("0 1 2 3 4", "", 5)),
    ("more replicas while it is bought for", stateful(5), "0 3", (admitted(3, RESERVED),), Found("0 3", "", 5)),
    ("more replicas while it runs", stateful(5), "0! 1! 2! 3 4", (admitted(3),), Found("0 1 2", "3 4", 3)),
    ("one is made anew, and more replicas", stateful(5), "0! 2! 3 4", (admitted(3),), Found("0 2", "3 4", 3)),
    ("one of two of its own", stateful(5), "0! 1! 2! 3? 4", (admitted(3),), Found("0 1 2", "3 4", 3)),
    ("leaving, and another of its own", stateful(4), "0! 1 2! 3?", (admitted(3, EVICTING),), Found("0 1 2", "3", 3)),
    ("it has left, and another of its own", stateful(4), "0 1 3?", (), Found("0 1", "3", 3)),
    ("fewer replicas", stateful(1), "0! 1! 2!", (admitted(3),), Found("0 1 2", "", 1, 2)),
    ("fewer replicas, some have ended", stateful(1), "0! 1- 2!", (admitted(3),), Found("0 1 2", "", 1, 1)),
    ("fewer replicas, one still waits", stateful(1), "0! 1! 2", (admitted(3),), Found("0 1", "", 1, 1)),
    ("no replicas", stateful(0), "0! 1!", (admitted(2),), Found("0 1", "", 0, 2)),
    ("other numbers", stateful(2, first=5), "0! 1! 5 6", (admitted(2),), Found("0 1 5 6", "", 2, 2)),
    ("all ran as gangs of their own", stateful(), "0? 1? 2?", (), Found("", "0 1 2", 0)),
    ("and one of these is made anew", stateful(), "0? 1? 2", (), Found("", "0 1 2", 0)),
    ("more than any machine could count", stateful(2**31 - 1), "0! 7", (admitted(2),), Found("0", "7", 2)),
]


MADE = (EphemeralClaim("data", "ebs"),)


def claiming(replicas: int = 3, **more: Any) -> Job:
    """A set that makes a claim for each pod."""
    made = stateful(replicas, **more)
    return replace(made, numbering=replace(made.numbering or Numbering(), claims=MADE))


def seated(numbers: str, state: GangState = GangState.ADMITTED) -> Gang:
    """A gang that was admitted with these numbers; `3-` is one that has been given back."""
    sets = (replace(ASKED, name=f"main-{it.rstrip('-')}", count=int(not it.endswith("-"))) for it in numbers.split())
    return replace(admitted(0, state), pod_sets=tuple(sets))


CASES += [
    ("claims: the first waits", claiming(), "0", (), Found("0", "", 3)),
    ("claims: none is there", claiming(), "", (), Found("", "", 0)),
    ("claims: none is there just now", claiming(), "", (seated("0 1 2"),), Found("", "", 3)),
    ("claims: some run", claiming(), "0! 1", (seated("0 1 2"),), Found("0 1", "", 3)),
    ("claims: it names no queue", claiming(queue=""), "0 1", (), Found("", "0 1", 0)),
    ("claims: more while it waits", claiming(5), "0 3", (), Found("0 3", "", 5)),
    ("claims: more while it is bought for", claiming(5), "0", (seated("0 1 2", RESERVED),), Found("0", "", 5)),
    ("claims: more while it runs", claiming(5), "0! 1 2! 3 4", (seated("0 1 2"),), Found("0 1 2", "3 4", 3)),
    ("claims: one of its own", claiming(4), "0 1? 2", (), Found("0 2", "1", 3)),
    ("claims: which has gone", claiming(4), "0! 1 2", (seated("0 2 3"),), Found("0 2", "1", 3)),
    ("claims: fewer", claiming(1), "0! 1! 2!", (seated("0 1 2"),), Found("0 1 2", "", 1, 2)),
    ("claims: fewer, and more again", claiming(3), "0! 1 2", (seated("0 1- 2-"),), Found("0", "1 2", 1)),
    ("claims: no replicas", claiming(0), "0! 1!", (seated("0 1"),), Found("0 1", "", 0, 2)),
    ("claims: other numbers", claiming(2, first=5), "0! 1! 5 6", (seated("0 1"),), Found("0 1", "5 6", 0, 2)),
    ("claims: all ran as their own", claiming(), "0? 1? 2", (), Found("", "0 1 2", 0)),
    ("claims: too many for one gang", claiming(101), "0 1", (), Found("", "0 1", 0)),
    ("claims: more than any machine could count", claiming(2**31 - 1), "0! 7", (seated("0 1"),), Found("0", "7", 2)),
]


@pytest.mark.parametrize(("what", "job", "pods", "gangs", "found"), CASES, ids=[row[0] for row in CASES])
def test_whose_gang_a_pod_is_of(what: str, job: Job, pods: str, gangs: tuple[Gang, ...], found: Found) -> None:
    assert divided(job, pods, *gangs)[0] == found


def test_each_number_mounts_the_claims_that_are_made_for_it() -> None:
    _, read = divided(claiming(2, first=3), "3")
    assert [it.name for it in read.pod_sets] == ["main-3", "main-4"]
    assert [it.constraints.ephemeral[0].claim for it in read.pod_sets] == ["data-web-3", "data-web-4"]


def test_pods_of_the_gang_are_of_its_pod_set_and_say_nothing_of_their_number() -> None:
    seen = numbered_pods(Index(), {"s": stateful()}, {"s": (pod("0"), pod("1"))}, NOBODY)
    assert [(it.pod_set, it.job_uid) for it in seen.job_pods["s"]] == [("main", "s")] * 2
    (job,) = works(Index(), seen.jobs, seen.job_pods).values()
    assert (job.ref, job.suspended, job.queue) == (REF, True, "q")


def test_pods_whose_set_is_not_known_wait_for_it() -> None:
    assert works(Index(), {}, {"s": (pod("0"),)}) == {}


def test_pods_that_outlive_their_set_are_no_gangs_of_their_own() -> None:
    left = replace(pod("0!"), job_uid="uid-0", owner_job="")
    assert works(Index(), {}, {"uid-0": (left,)}) == {}


def test_sets_without_a_queue_or_pods_cost_nothing() -> None:
    sets, pods = {"s": stateful(queue="")}, {"other": (pod("0"),)}
    found = numbered_pods(Index(), sets, pods, NOBODY)
    assert found.jobs is sets
    assert found.job_pods is pods


MARKS = st.sampled_from(["", "!", "-", "?"])


@given(
    marks=st.dictionaries(st.integers(0, 8), MARKS),
    replicas=st.integers(0, 8),
    first=st.integers(0, 3),
    count=st.none() | st.integers(1, 6),
)
def test_no_pod_is_of_two_gangs_and_no_gang_has_more_that_wait_than_seats(
    marks: dict[int, str], replicas: int, first: int, count: int | None
) -> None:
    pods = " ".join(f"{number}{mark}" for number, mark in sorted(marks.items()))
    gangs = () if count is None else (admitted(count),)
    found, job = divided(stateful(replicas, first=first), pods, *gangs)
    own, single = set(found.own.split()), set(found.single.split())
    assert not own & single
    assert {text[:-1] for text in pods.split() if text.endswith("?")} <= single
    taken = {text[:-1] for text in pods.split() if text[-1] in "!-"}
    assert taken <= own
    asked = sum(it.count for it in job.pod_sets)
    assert asked <= max(replicas, count or 0)
    inside = {str(number) for number in range(first, first + replicas)}
    if len(taken & inside) <= (count or replicas):
        assert len(own & inside) <= asked
