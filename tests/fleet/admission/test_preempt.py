"""Whose gangs leave: Kueue's classical cases, and what must hold whatever the tree."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.admission.compile import usage_of
from fleet.admission.preempt import Contest, Victim, victims
from fleet.admission.tree import FlavorResource, Quota, QuotaTree, Usage
from fleet.snapshot import Gang, GangState, PodSet
from model.kinds import Queue
from tests.support.fleets import NOW, gang
from tests.support.kueue import Case, cases, tree_of

# -- Kueue's own cases ------------------------------------------------------------------------------------------------


def _queue(name: str, **preemption: str) -> Queue:
    spec = {"team": "t", "flavors": ["default"], "preemption": preemption}
    return Queue.model_validate({"apiVersion": "muster.dev/v1alpha1", "metadata": {"name": name}, "spec": spec})


def _policy(case: Case) -> Queue:
    name = case["incoming"]["cluster_queue"]
    declared = next(queue for queue in case["cluster_queues"] if queue["name"] == name)["preemption"]
    return _queue(
        "q",
        withinQueue=declared["within_cluster_queue"],
        reclaim=declared["reclaim_within_cohort"],
        whileBorrowing=declared.get("borrow_within_cohort", {}).get("policy", "Never"),
    )


def _gang(workload: Case, queue: str, **more: Any) -> Gang:
    sets = [PodSet(it["name"], it["count"], it["requests"]) for it in workload["pod_sets"]]
    name = workload["name"]
    created_s = NOW + (workload["created_s"] or 0)
    return gang(name, *sets, queue=queue, priority=workload.get("priority", 0), created_s=created_s, **more)


def _running(workload: Case) -> Gang:
    admission = workload["admission"]
    return _gang(
        workload,
        admission["cluster_queue"],
        state=GangState.ADMITTED,
        flavors={it["name"]: next(iter(it["flavors"].values())) for it in admission["pod_sets"]},
        quota_reserved_at_s=NOW + admission["reserved_at_s"],
        admitted_at_s=NOW - 9,
    )


def _comparable(case: Case) -> bool:
    """Classical, one flavor a pod set, and no priority threshold that would matter: Muster has none of those."""
    if case["config"].get("fair_sharing") or any("conditions" in workload for workload in case["workloads"]):
        return False
    if any(len(set(it["flavors"].values())) > 1 for wl in case["workloads"] for it in wl["admission"]["pod_sets"]):
        return False
    if any(len({f["flavor"] for f in it["flavors"].values()}) > 1 for it in case["assignment"]):
        return False
    for queue in case["cluster_queues"]:
        threshold = queue["preemption"].get("borrow_within_cohort", {}).get("max_priority_threshold")
        if threshold is not None and any(wl.get("priority", 0) > threshold for wl in case["workloads"]):
            return False
    return True


@pytest.mark.parametrize("case", [it for it in cases("preemption") if _comparable(it)], ids=lambda case: case["id"])
def test_victims_as_kueue_chooses_them(case: Case) -> None:
    tree = tree_of(case)
    running = [_running(workload) for workload in case["workloads"]]
    for it in running:
        tree.charge(it.queue, usage_of(tree, it))
    incoming = _gang(case["incoming"], case["incoming"]["cluster_queue"])
    flavors = {it["name"]: next(iter(it["flavors"].values()))["flavor"] for it in case["assignment"]}
    usage = usage_of(tree, incoming, flavors)
    cells = tuple(
        FlavorResource(chosen["flavor"], resource)
        for it in case["assignment"]
        for resource, chosen in it["flavors"].items()
        if chosen["mode"] != "Fit"
    )
    found = _choose(Contest(tree, incoming, _policy(case), usage, cells), running)
    names = sorted({(it.gang.job.name, str(it.reason)) for it in found})
    assert names == sorted((it["workload"].lstrip("/"), it["reason"]) for it in case["expect"]["preempted"])


def _choose(contest: Contest, running: list[Gang], protected_s: float = 0.0) -> tuple[Victim, ...]:
    tree = contest.tree
    return victims(
        contest,
        running,
        NOW,
        lambda _gang: protected_s,
        lambda it: tree.release(it.queue, usage_of(tree, it)),
        lambda it: tree.charge(it.queue, usage_of(tree, it)),
        lambda: tree.fits(contest.gang.queue, contest.usage),
    )


# -- whatever the tree ------------------------------------------------------------------------------------------------

CELL = FlavorResource("f", "gpu")
QUEUES = ("a", "b", "c")
few = st.integers(0, 6)


@st.composite
def contests(draw: st.DrawFn) -> tuple[Contest, list[Gang]]:
    """Three teams with a queue each, gangs admitted as long as they fit, one more that does not."""
    tree = QuotaTree()
    tree.add("org", None, {CELL: Quota(draw(few))})
    for name in QUEUES:
        tree.add(f"t-{name}", "org", {CELL: Quota(draw(few), draw(st.none() | few), draw(st.none() | few))})
        tree.add(name, f"t-{name}", {}, is_queue=True)
    tree.seal()
    running = []
    for n in range(draw(st.integers(1, 8))):
        it = _one(f"r{n}", draw(st.sampled_from(QUEUES)), draw(st.integers(1, 4)), draw(st.integers(0, 2)), n)
        usage = usage_of(tree, it)
        if tree.fits(it.queue, usage):
            tree.charge(it.queue, usage)
            running.append(it)
    mine = _one("new", draw(st.sampled_from(QUEUES)), draw(st.integers(1, 6)), draw(st.integers(0, 2)), 9)
    policy = _queue(
        mine.queue,
        withinQueue=draw(st.sampled_from(("Never", "LowerPriority", "LowerOrNewerEqualPriority"))),
        reclaim=draw(st.sampled_from(("Never", "LowerPriority", "Any"))),
        whileBorrowing=draw(st.sampled_from(("Never", "LowerPriority"))),
    )
    usage = usage_of(tree, mine)
    return Contest(tree, mine, policy, usage, tuple(usage)), running


def _one(name: str, queue: str, gpus: int, priority: int, number: int) -> Gang:
    return gang(
        name,
        PodSet("main", 1, {"gpu": gpus}),
        queue=queue,
        priority=priority,
        state=GangState.ADMITTED,
        flavors={"main": "f"},
        created_s=NOW - 100 + number,
        quota_reserved_at_s=NOW - 50 + number,
        admitted_at_s=NOW - 50 + number,
    )


def _state(tree: QuotaTree) -> dict[str, Usage]:
    return {it.name: {c: v for c, v in it.usage.items() if v} for it in (*tree.cohorts.values(), *tree.queues.values())}


@settings(max_examples=300)
@given(contests())
def test_victims_are_permitted_sufficient_and_minimal(case: tuple[Contest, list[Gang]]) -> None:
    contest, running = case
    tree, mine = contest.tree, contest.gang
    if tree.fits(mine.queue, contest.usage):
        return
    before = _state(tree)
    owned = {name: tree.cohorts[f"t-{name}"].unused(CELL) for name in QUEUES}
    chosen = _choose(contest, running)
    assert _state(tree) == before
    policy = contest.queue.spec.preemption
    for victim in chosen:
        it = victim.gang
        if it.queue == mine.queue:
            assert policy.within_queue != "Never"
            assert it.priority < mine.priority or policy.within_queue == "LowerOrNewerEqualPriority"
        else:
            assert policy.reclaim == "Any" or (policy.reclaim == "LowerPriority" and it.priority < mine.priority)
            assert owned[it.queue] < 0, "nothing is taken from a team within its guarantee"
    for victim in chosen:
        tree.release(victim.gang.queue, usage_of(tree, victim.gang))
    if chosen:
        assert tree.fits(mine.queue, contest.usage)
        for victim in chosen:
            usage = usage_of(tree, victim.gang)
            tree.charge(victim.gang.queue, usage)
            assert not tree.fits(mine.queue, contest.usage) or _would_borrow(contest), "one victim too many"
            tree.release(victim.gang.queue, usage)


def _would_borrow(contest: Contest) -> bool:
    """An attempt without borrowing may take more, so that the preemptor stays within its guarantee."""
    return contest.borrows()


@given(contests())
def test_a_team_within_its_guarantee_gets_it_when_reclaim_is_any(case: tuple[Contest, list[Gang]]) -> None:
    contest, running = case
    tree, mine = contest.tree, contest.gang
    if contest.queue.spec.preemption.reclaim != "Any" or contest.borrows() or tree.fits(mine.queue, contest.usage):
        return
    assert _choose(contest, running), "a guarantee that cannot be had is none"


@given(contests())
def test_protected_gangs_stay(case: tuple[Contest, list[Gang]]) -> None:
    contest, running = case
    assert all(NOW - it.gang.admitted_at_s >= 46 for it in _choose(contest, running, protected_s=46.0))
