"""What is told of a time in which nobody looked, of who held machines and of machines that ended."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.cost.machine_use import UNOBSERVED, MachineUse
from fleet.cost.silence import Silence, bill_since, silent_segments
from fleet.cost.uses import CostTerms, ended_uses
from fleet.quota.queue_binding import payer_of
from fleet.snapshot import Eviction, Gang, GangState, Instance, Job, JobResult, Pin, Snapshot
from model import labels
from tests.fleet.cost.test_records import H0, USD_H, held, use
from tests.support.fleets import P5, A, catalog, gang, node_of, offering, ready_claim, small_fleet

BEGIN_S, END_S = H0 + 600, H0 + 4200
ADMITTED_S = H0 + 100


def runs(**more: Any) -> Gang:
    return gang("g", state=GangState.ADMITTED, admitted_at_s=ADMITTED_S, **more)


def ended_job(at_s: float) -> Job:
    it = runs()
    return Job(it.job, "1", "q", "", False, it.pod_sets, H0, JobResult.SUCCEEDED, at_s)


EVICTED = Eviction("Preempted", "", H0 + 2400, admitted_at_s=ADMITTED_S)


@pytest.mark.parametrize(
    ("now", "job", "parts"),
    [
        pytest.param(runs(), None, {"t": 3600}, id="it runs"),
        pytest.param(runs(), ended_job(H0 + 2400), {"t": 1800, UNOBSERVED: 1800}, id="its job has ended"),
        pytest.param(
            replace(runs(), state=GangState.FINISHED),
            ended_job(H0 + 2400),
            {"t": 1800, UNOBSERVED: 1800},
            id="and told",
        ),
        pytest.param(
            replace(runs(), state=GangState.EVICTING, eviction=replace(EVICTED, at_s=END_S)),
            None,
            {"t": 3600},
            id="now it leaves",
        ),
        pytest.param(
            replace(runs(), state=GangState.PENDING, admitted_at_s=0.0, eviction=EVICTED),
            None,
            {"t": 1800, UNOBSERVED: 1800},
            id="it was stopped",
        ),
        pytest.param(replace(runs(), admitted_at_s=H0 + 3000), None, {UNOBSERVED: 3600}, id="it runs elsewhere, anew"),
        pytest.param(
            replace(runs(), admitted_at_s=H0 + 3000), ended_job(H0 + 3600), {UNOBSERVED: 3600}, id="anew, to its end"
        ),
        pytest.param(
            replace(runs(), state=GangState.FINISHED, admitted_at_s=H0 + 3000),
            ended_job(H0 + 3600),
            {UNOBSERVED: 3600},
            id="anew, to its end, and told",
        ),
        pytest.param(
            replace(runs(), state=GangState.PENDING, admitted_at_s=0.0, eviction=EVICTED),
            ended_job(H0 + 3600),
            {"t": 1800, UNOBSERVED: 1800},
            id="it was stopped before its job ended",
        ),
        pytest.param(
            replace(runs(), state=GangState.EVICTING, eviction=replace(EVICTED, at_s=H0 + 3000)),
            ended_job(H0 + 2400),
            {"t": 1800, UNOBSERVED: 1800},
            id="its job ended before it was told to leave",
        ),
        pytest.param(replace(runs(), state=GangState.FINISHED), None, {UNOBSERVED: 3600}, id="its job is gone"),
        pytest.param(None, None, {UNOBSERVED: 3600}, id="it is gone"),
    ],
)
def test_who_held_a_machine_before_has_it_as_long_as_its_job_or_workload_says(
    now: Gang | None, job: Job | None, parts: dict[str, float]
) -> None:
    jobs = {"uid-g": job} if job is not None else {}
    seen = Snapshot(END_S, gangs={"uid-g": now} if now is not None else {}, jobs=jobs)
    before = use(held("uid-g", 1.0, since_s=ADMITTED_S))
    found = [*silent_segments(Silence(BEGIN_S, END_S, seen), before, use())]
    ends = [*(it.begin_s for it in found[1:]), END_S]
    told = {UNOBSERVED: 0.0, "t": 0.0}
    for it, end_s in zip(found, ends, strict=True):
        told["t" if it.use.holdings else it.use.rest] += end_s - it.begin_s
    assert {name: seconds for name, seconds in told.items() if seconds} == parts


def listed(machine: str = "i-0", ended_s: float = 0.0, **more: Any) -> Instance:
    state = "terminated" if ended_s else "running"
    facts: dict[str, Any] = {"launched_at_s": H0, "tags": {labels.CLUSTER: "c"}} | more
    return Instance(machine, P5.name, A, "on-demand", state, ended_at_s=ended_s, **facts)


@pytest.mark.parametrize(
    ("machine", "instances", "seconds"),
    [
        pytest.param(use(), [listed()], 3600, id="it bills before and after"),
        pytest.param(use(launched_s=H0 + 3200), [listed()], 1000, id="launched meanwhile"),
    ],
)
def test_a_machine_bills_for_a_silence_from_its_launch_on(
    machine: MachineUse, instances: list[Instance], seconds: float
) -> None:
    seen = Snapshot(END_S, instances={it.id: it for it in instances}, instances_at_s=END_S)
    bill = bill_since(Silence(BEGIN_S, END_S, seen), {machine.machine: machine})
    assert bill.by_team == ({UNOBSERVED: round(USD_H * seconds / 3600 * 1e6)} if seconds else {})


FLEET, SOLD = small_fleet(), catalog()
OFFERING = offering(FLEET, SOLD, "h100", P5.name, A, "on-demand")
CLAIM = replace(ready_claim(OFFERING, "m0"), launched_at_s=H0)
TERMS = CostTerms(payer_of)


def world(*instances: Instance, **more: Any) -> Snapshot:
    facts: dict[str, Any] = {"claims": {"m0": CLAIM}, "catalog": SOLD, "cluster": "c", "instances_at_s": END_S} | more
    return Snapshot(END_S, instances={it.id: it for it in instances}, **facts)


MINE = CLAIM.instance_id
NODE = node_of(CLAIM, OFFERING)


@pytest.mark.parametrize(
    ("seen", "ended"),
    [
        pytest.param(world(listed(MINE)), {}, id="it runs"),
        pytest.param(world(listed(MINE, H0 + 900)), {MINE: 900}, id="the cloud says when it ended"),
        pytest.param(world(listed(MINE, H0 + 300)), {}, id="and that was before"),
        pytest.param(world(listed(MINE, END_S + 900)), {MINE: END_S - H0}, id="or is still to come"),
        pytest.param(
            world(listed(MINE), listed("i-s", H0 + 950)), {"i-s": 950}, id="one without a claim came and went"
        ),
        pytest.param(
            world(listed(MINE), listed("i-s", H0 + 950, tags={labels.CLUSTER: "other"})),
            {},
            id="one of another cluster",
        ),
        pytest.param(world(), {}, id="forgotten, and its node gone"),
        pytest.param(
            world(nodes={NODE.name: replace(NODE, ready=False, ready_changed_at_s=H0 + 800)}),
            {MINE: 800},
            id="forgotten, and its node silent since then",
        ),
        pytest.param(world(nodes={NODE.name: NODE}), {}, id="not listed, though its node is ready"),
    ],
)
def test_which_machines_have_ended_meanwhile_and_when(seen: Snapshot, ended: dict[str, float]) -> None:
    found = ended_uses(FLEET, seen, TERMS, BEGIN_S)
    assert {it.machine: at_s - H0 for it, at_s in found} == ended


def test_who_was_on_a_machine_that_has_ended_pays_for_it_until_then() -> None:
    """Its Workload has not been told of the end yet."""
    pods = replace(gang().pod_sets[0], name="main", count=1, requests={labels.GPU_RESOURCE: 8})
    mine = replace(runs(), pod_sets=(pods,), pins=(Pin("main", CLAIM.node, "m0", 1),))
    seen = world(listed(MINE, H0 + 900), gangs={mine.uid: mine}, jobs={})
    bill = bill_since(Silence(BEGIN_S, END_S, seen), {}, ended_uses(FLEET, seen, TERMS, BEGIN_S))
    (payer,) = bill.by_team
    assert payer != UNOBSERVED
    assert bill.total == round(CLAIM.charged_usd_h * 300 / 3600 * 1e6)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_bill_for_a_silence_is_the_machines_time_however_it_is_parted(data: st.DataObject) -> None:
    draw, times = data.draw, st.integers(int(H0), int(END_S) + 500)
    machines, until = [], []
    gangs, jobs = {}, {}
    for n in range(draw(st.integers(1, 4))):
        uid = f"uid-{n}"
        since = draw(times)
        gangs[uid] = gang(f"{n}", state=GangState.ADMITTED, admitted_at_s=since)
        if draw(st.booleans()):
            jobs[uid] = replace(ended_job(draw(times)), ref=gangs[uid].job)
        launched = draw(times)
        usd_h = draw(st.sampled_from([0.1, 3.7, 55.04]))
        machines.append(
            use(
                held(uid, draw(st.sampled_from([0.3, 1.0])), since_s=since),
                machine=f"i-{n}",
                launched_s=launched,
                usd_h=usd_h,
            )
        )
        until.append((min(END_S, draw(times)), usd_h, launched))
    seen = Snapshot(END_S, gangs=gangs, jobs=jobs)
    silence = Silence(BEGIN_S, END_S, seen)
    bill = bill_since(silence, {}, [(it, end_s) for it, (end_s, _, _) in zip(machines, until, strict=True)])
    exact = sum(max(0.0, end_s - max(BEGIN_S, begin_s)) * usd_h / 3600 * 1e6 for end_s, usd_h, begin_s in until)
    assert bill.total == sum(bill.by_team.values()) == pytest.approx(exact, abs=3 * len(machines))
