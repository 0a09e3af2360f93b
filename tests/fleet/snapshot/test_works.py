"""Jobs completed by what stands beside them: the job they make, their pods, or nothing but pods."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.snapshot import GroupMember, Hold, Job, JobRef, JobResult, Pod, PodSet, RuntimeClass, Terms
from fleet.snapshot.works import excess, group_job, group_uid, has_started, works
from model.index import Index
from model.kinds import Toleration
from tests.support.fleets import NOW, amounts

UID = group_uid("ns", "g")
SMALL, LARGE = PodSet("small", 1, amounts(gpu=1)), PodSet("large", 1, amounts(gpu=8))


def pod(name: str, total: int = 2, *, age_s: float = 0.0, shape: PodSet = SMALL, **changes: Any) -> Pod:
    member = GroupMember("g", total, shape, "q", NOW - age_s)
    held = Pod(f"uid-{name}", "ns", name, "", "Pending", amounts(gpu=1), gated=True, job_uid=UID, member=member)
    return replace(held, pod_set=shape.name, **changes)


RUNS: dict[str, Any] = {"workload": "w", "gated": False, "node": "n", "phase": "Running"}
DONE: dict[str, Any] = {**RUNS, "phase": "Succeeded"}
FELL: dict[str, Any] = {**RUNS, "phase": "Failed"}
GOING: dict[str, Any] = {**RUNS, "deleting": True}


def test_a_complete_group_is_a_job() -> None:
    job = group_job(UID, (pod("b", age_s=5), pod("a", age_s=9)))
    assert job.ref == JobRef("v1", "PodGroup", "ns", "g", UID)
    assert (job.queue, job.suspended, job.hold, job.created_at_s) == ("q", True, Hold.PODS, NOW - 9)
    assert job.pod_sets == (replace(SMALL, count=2),)


def test_pods_that_ask_for_the_same_are_one_role() -> None:
    found = group_job(UID, (pod("a", 3, shape=LARGE), pod("b", 3), pod("c", 3)))
    assert [(one.name, one.count) for one in found.pod_sets] == [("large", 1), ("small", 2)]


GROUPS: list[tuple[str, list[Pod], bool, bool, JobResult | None]] = [
    # what, pods, asks for a queue, has started, result
    ("incomplete", [pod("a")], False, False, None),
    ("complete", [pod("a"), pod("b")], True, False, None),
    ("one runs", [pod("a", **RUNS), pod("b")], True, True, None),
    ("one runs, one is not there yet", [pod("a", **RUNS)], True, True, None),
    ("one past the gate, not ours", [pod("a", gated=False), pod("b")], True, True, None),
    ("one is leaving", [pod("a", **GOING), pod("b")], False, False, None),
    ("all are leaving", [pod("a", **GOING), pod("b", **GOING)], False, False, None),
    ("one failed", [pod("a", **FELL), pod("b", **RUNS)], True, True, None),
    ("one failed and waits for another", [pod("a", **FELL), pod("b")], False, False, None),
    ("one failed and is replaced", [pod("a", **FELL), pod("b"), pod("c")], True, False, None),
    ("one is done", [pod("a", **DONE), pod("b", **RUNS)], True, True, None),
    ("all are done", [pod("a", **DONE), pod("b", **DONE)], True, False, JobResult.SUCCEEDED),
    ("all ended, one badly", [pod("a", **DONE), pod("b", **FELL)], True, False, JobResult.FAILED),
    ("replaced and done", [pod("a", **FELL), pod("b", **DONE), pod("c", **DONE)], True, False, JobResult.SUCCEEDED),
    ("done, and the other never came", [pod("a", **DONE)], False, False, None),
]


@pytest.mark.parametrize(("what", "pods", "asks", "started", "result"), GROUPS, ids=[row[0] for row in GROUPS])
def test_how_a_group_stands(what: str, pods: list[Pod], asks: bool, started: bool, result: JobResult | None) -> None:
    job = group_job(UID, pods)
    assert (bool(job.queue), not job.suspended, job.result) == (asks, started, result)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([pod("a"), pod("b")], []),
        ([pod("a", age_s=9), pod("b", age_s=5), pod("c", age_s=7)], ["b"]),
        ([pod("a"), pod("b"), pod("c")], ["c"]),
        ([pod("a", **RUNS), pod("b", **RUNS), pod("c")], ["c"]),
        ([pod("a", age_s=9), pod("b", **RUNS), pod("c", **RUNS)], ["a"]),
        ([pod("a", **RUNS), pod("b", **RUNS), pod("c", **RUNS)], []),  # what runs is not ended for a wrong number
        ([pod("a", **FELL), pod("b"), pod("c")], []),
        ([pod("a", **DONE), pod("b"), pod("c")], ["c"]),
        ([], []),
    ],
)
def test_excess_goes_youngest_first(pods: list[Pod], expected: list[str]) -> None:
    assert [one.name for one in excess(pods)] == expected


def test_excess_is_no_part_of_what_is_asked() -> None:
    found = group_job(UID, (pod("a", age_s=9), pod("b", age_s=8), pod("c", age_s=7, shape=LARGE)))
    assert found.pod_sets == (replace(SMALL, count=2),)


@given(st.permutations([pod("a", 3, age_s=9), pod("b", 3, age_s=9), pod("c", 3, **RUNS), pod("d", 3)]))
def test_the_order_of_pods_does_not_matter(pods: list[Pod]) -> None:
    expected = group_job(UID, sorted(pods, key=lambda one: one.name))
    assert group_job(UID, pods) == expected
    assert [one.name for one in excess(pods)] == ["d"]


def test_the_last_checkpoint_of_any_pod_counts() -> None:
    pods = [pod("a"), pod("b")]
    noted = [
        replace(one, member=replace(one.member, last_checkpoint_s=NOW - at))
        for one, at in zip(pods, (9, 5), strict=True)
    ]  # type: ignore[type-var]
    assert group_job(UID, noted).last_checkpoint_s == NOW - 5
    assert group_job(UID, pods).last_checkpoint_s is None


def test_what_the_oldest_pod_says_of_the_run_counts() -> None:
    pods = [pod("a"), pod("b")]
    facts: dict[str, Any] = {"expected_run_s": 1.0, "max_run_s": 2.0, "sla_waiting_s": 3.0, "priority_boost": 4}
    facts["on_node_failure"] = "Replace"
    noted = [
        replace(pods[0], member=replace(pods[0].member, **facts)),  # type: ignore[type-var]
        replace(pods[1], member=replace(pods[1].member, priority_boost=9, pod_priority_class="high")),  # type: ignore[type-var]
    ]
    found = group_job(UID, noted)
    assert {name: getattr(found, name) for name in facts} == facts
    assert found.pod_priority_class == "high"


# -- jobs that have an object -----------------------------------------------------------------------------------------


def job(uid: str, **changes: Any) -> Job:
    plain = Job(JobRef("x/v1", "X", "ns", uid, uid), "1", "q", "", suspended=True, pod_sets=(), created_at_s=NOW)
    return replace(plain, **changes)


def test_a_job_held_pod_by_pod_has_started_when_a_pod_has() -> None:
    volcano = job("v", hold=Hold.PODS)
    waiting = Pod("p", "ns", "p", "", "Pending", {}, gated=True, job_uid="v")
    assert works(Index(), {"v": volcano}, {"v": (waiting,)})["v"].suspended
    assert not works(Index(), {"v": volcano}, {"v": (replace(waiting, workload="w"),)})["v"].suspended
    assert works(Index(), {"v": replace(volcano, suspended=False)}, {})["v"].suspended


def test_a_recipe_asks_for_what_the_job_it_makes_does() -> None:
    train = job("t", shaped_below=True)
    below = job("j", queue="", owner_uid="t", pod_sets=(LARGE,), ready_pods=3, active_pods=4, do_not_disrupt="true")
    found = works(Index(), {"t": train, "j": below}, {})
    assert found["j"] == below
    assert (found["t"].queue, found["t"].pod_sets) == ("q", (LARGE,))
    assert (found["t"].ready_pods, found["t"].active_pods, found["t"].do_not_disrupt) == (3, 4, "true")


def test_a_recipe_whose_job_is_not_made_yet_asks_for_nothing() -> None:
    assert works(Index(), {"t": job("t", shaped_below=True)}, {})["t"].queue == ""


def test_all_others_stay_what_they_are() -> None:
    plain = job("a")
    found = works(Index(), {"a": plain}, {"lost": (Pod("p", "ns", "p", "", "Pending", {}, job_uid="lost"),)})
    assert found == {"a": plain}
    assert works(Index(), {}, {UID: (pod("a"), pod("b"))})[UID].queue == "q"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, False), (RUNS, True), (GOING, False), (DONE, False), ({"gated": False}, True), ({"workload": "w"}, True)],
)
def test_what_has_started(changes: dict[str, Any], expected: bool) -> None:
    assert has_started(pod("a", **changes)) is expected


def test_groups_of_one_name_in_two_namespaces_are_two() -> None:
    assert group_uid("a", "g") != group_uid("b", "g")
    assert len(group_uid("a", "g")) == 32


# -- groups that an object beside them speaks for ---------------------------------------------------------------------

TERMS = Terms("ns", "g", 3, {"small": 2})


def test_a_pod_group_of_volcano_is_complete_with_as_many_pods_as_must_run_together() -> None:
    pods = [pod("a", 0, shape=LARGE), pod("b", 0), pod("c", 0), pod("d", 0)]
    assert works(Index(), {}, {UID: tuple(pods[:2])}, {TERMS.key: TERMS})[UID].queue == ""
    job = works(Index(), {}, {UID: tuple(pods)}, {TERMS.key: TERMS})[UID]
    assert job.queue == "q"
    assert [(one.name, one.count, one.core) for one in job.pod_sets] == [("large", 1, 1), ("small", 3, 2)]
    assert excess(pods) == []


@pytest.mark.parametrize(
    ("phases", "result"),
    [
        (["Succeeded"] * 4, JobResult.SUCCEEDED),
        (["Succeeded"] * 3 + ["Failed"], JobResult.SUCCEEDED),
        (["Succeeded"] * 2 + ["Failed"] * 2, JobResult.FAILED),
        (["Succeeded"] * 3 + ["Running"], None),
        (["Succeeded"] * 2, None),
    ],
)
def test_it_has_done_well_if_as_many_have(phases: list[str], result: JobResult | None) -> None:
    pods = [pod(str(n), 0, **{**RUNS, "phase": phase}) for n, phase in enumerate(phases)]
    assert group_job(UID, pods, TERMS).result == result


def test_a_total_that_the_pods_name_counts_before_the_terms() -> None:
    job = group_job(UID, [pod("a"), pod("b")], TERMS)
    assert (job.queue, [(one.count, one.core) for one in job.pod_sets]) == ("q", [(2, None)])


def test_a_group_of_which_nobody_says_how_many_it_has_never_starts_and_loses_none() -> None:
    pods = [pod("a", 0), pod("b", 0)]
    job = group_job(UID, pods)
    assert (job.queue, job.result, excess(pods)) == ("", None, [])
    assert group_job(UID, [pod("a", 0, **DONE)]).result is None


def test_labels_that_number_the_pods_are_no_labels_of_their_role() -> None:
    members = [pod(f"p{n}", shape=replace(SMALL, labels=(("app", "web"), ("index", str(n))))) for n in range(2)]
    (role,) = group_job("u", members).pod_sets
    assert (role.count, role.labels) == (2, (("app", "web"),))


KATA = RuntimeClass("kata", {"cpu": 250, "x/y": 1}, {"a": "b"}, (Toleration(key="k", operator="Exists"),))


def run_by(runtime: str, **asked: Any) -> PodSet:
    """The pods of a job of that class, as the deciders see them."""
    pods = replace(PodSet("main", 1, {"cpu": 1000}, runtime_class=runtime), **asked)
    found = works(Index(), {"j": job("j", pod_sets=(pods,))}, {}, runtimes={"kata": KATA})
    return found["j"].pod_sets[0]


def test_a_runtime_adds_to_what_its_pods_ask() -> None:
    found = run_by("kata", node_selector={"c": "d"}, tolerations=KATA.tolerations)
    assert found.requests == {"cpu": 1250, "x/y": 1}
    assert found.node_selector == {"a": "b", "c": "d"}
    assert found.tolerations == KATA.tolerations
    assert not found.unsupported


@pytest.mark.parametrize("runtime", ["", "gone"])
def test_without_a_runtime_nothing_is_added(runtime: str) -> None:
    assert run_by(runtime) == PodSet("main", 1, {"cpu": 1000}, runtime_class=runtime)


def test_a_runtime_that_selects_other_nodes_is_refused() -> None:
    (found,) = run_by("kata", node_selector={"a": "c"}).unsupported
    assert found.path == "spec.nodeSelector[a]"
