"""Whoever looks on: the books, the journal, announcements, metrics and the log."""

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from agent.accounts import Accounts, Bookkeeper
from agent.announce import Announcer
from agent.failures import SetAside
from agent.inbox import Done, Failed
from agent.journal import Journal
from agent.logs import configure_logs
from agent.metrics import Metrics
from agent.mirror import Mirror
from fleet.actions import (
    Announce,
    Consider,
    LaunchMachines,
    OpenClaims,
    OpenGang,
    SaveClaim,
    SaveGang,
    TerminateMachines,
    Withdrawal,
)
from fleet.cost.allocation import IDLE
from fleet.cost.machine_use import UNOBSERVED
from fleet.gangs import transitions
from fleet.nodeclaims.launch import launch_request
from fleet.reasons import Reason
from fleet.snapshot import (
    CapacityPool,
    Claim,
    ClaimState,
    DecisionFailure,
    GangState,
    IdleGpus,
    InterruptionHistory,
    JobRef,
    LaunchError,
    LaunchFailure,
    LaunchOutcome,
    NodeDisruption,
    Outlook,
    Proposal,
    Snapshot,
)
from providers.clock import VirtualClock
from providers.kube.batches import Replace
from tests.support.fleets import (
    NOW,
    P5,
    A,
    FleetBuilder,
    catalog,
    gang,
    instance_of,
    node_of,
    offering,
    ready_claim,
    small_fleet,
)

FLEET, SOLD = small_fleet(), catalog()
OFFERING = offering(FLEET, SOLD, "h100", P5.name, A, "on-demand")
CLAIM = ready_claim(OFFERING, "m0")
GANG = gang()


def world(now_s: float = NOW, *, machines: int = 1) -> Snapshot:
    claims = {f"m{n}": ready_claim(OFFERING, f"m{n}") for n in range(machines)}
    instances = {claim.instance_id: instance_of(claim) for claim in claims.values()}
    return Snapshot(now_s=now_s, claims=claims, instances=instances, catalog=SOLD)


def mirror() -> Mirror:
    made = Mirror("c")
    made.gangs.observe(Replace({f"ns/{GANG.workload}": GANG}, "1"))
    made.claims.observe(Replace({"m0": CLAIM}, "1"))
    made.nodes.observe(Replace({CLAIM.node: node_of(CLAIM, OFFERING)}, "1"))
    return made


# -- the books --------------------------------------------------------------------------------------------------------


def test_an_hour_of_an_idle_machine_costs_its_price() -> None:
    accounts = Accounts()
    for minute in range(61):
        accounts.charge(FLEET, world(NOW + 60 * minute))
    assert accounts.spent_usd[IDLE] == pytest.approx(OFFERING.offer.price_usd_h, rel=1e-6)


def test_of_a_long_silence_a_machine_is_charged_and_nobody_for_it() -> None:
    accounts = Accounts()
    accounts.charge(FLEET, world(NOW))
    accounts.charge(FLEET, world(NOW + 5 * 3600))
    assert accounts.spent_usd == {UNOBSERVED: pytest.approx(5 * OFFERING.offer.price_usd_h)}


def test_a_silence_over_the_turn_of_a_month_is_charged_from_the_turn_on() -> None:
    accounts = Accounts()
    turn = datetime(2027, 2, 1, tzinfo=UTC).timestamp()
    accounts.charge(FLEET, world(turn - 7200))
    accounts.charge(FLEET, world(turn + 1800))
    assert accounts.spent_usd == {UNOBSERVED: pytest.approx(OFFERING.offer.price_usd_h / 2)}


def test_a_silence_is_charged_once_whoever_reads_the_books_and_however_often() -> None:
    """Two agents, and one that dies before it has saved: all begin at what the books say."""
    accounts = Accounts()
    accounts.charge(FLEET, world(NOW))
    kept, totals = accounts.dump(), []
    for _ in range(3):
        again = Accounts()
        again.restore(kept)
        again.charge(FLEET, world(NOW + 7200))
        totals.append(again.bill.total)
    last = Accounts()
    last.restore(again.dump())
    last.charge(FLEET, world(NOW + 7200))
    assert {*totals, last.bill.total} == {round(2 * OFFERING.offer.price_usd_h * 1e6)}


def launched(at_s: float, known_s: float, now_s: float) -> Snapshot:
    """A machine that the cloud launched at one time, and whose claim was told of it at another."""
    claim = replace(CLAIM, launched_at_s=known_s)
    instances = {claim.instance_id: replace(instance_of(claim), launched_at_s=at_s)}
    return replace(world(now_s), claims={"m0": claim}, instances=instances)


@pytest.mark.parametrize("again", [False, True], ids=["by one agent", "by the next one"])
@pytest.mark.parametrize(
    ("launched_s", "known_s", "seconds"),
    [
        pytest.param(20, 30, 40, id="at once"),
        pytest.param(-50, 30, 110, id="the answer was lost, and came two minutes after the launch"),
        pytest.param(-9_000, 30, 3660, id="no launch goes unseen for so long"),
        pytest.param(90, 50, 0, id="by a clock that is ahead"),
    ],
)
def test_a_machine_that_is_seen_first_is_charged_from_its_launch_on_and_once(
    launched_s: float, known_s: float, seconds: float, *, again: bool
) -> None:
    def charged(accounts: Accounts, now_s: float) -> Accounts:
        accounts.charge(FLEET, launched(NOW + launched_s, NOW + known_s, NOW + now_s))
        if not again:
            return accounts
        after = Accounts()
        after.restore(accounts.dump())
        return after

    accounts = Accounts()
    accounts.charge(FLEET, world(NOW, machines=0))
    accounts = charged(accounts, 60)
    first = seconds * OFFERING.offer.price_usd_h * 1e6 / 3600
    assert accounts.bill.total == pytest.approx(first, abs=1)
    accounts = charged(accounts, 120)
    further = 30 if again and launched_s == 90 else 60
    assert accounts.bill.total == pytest.approx(first + further * OFFERING.offer.price_usd_h * 1e6 / 3600, abs=2)


def test_a_machine_that_is_seen_first_counts_though_times_are_measured_by_another_clock() -> None:
    """A turn takes a while: what is measured begins a little after the look before."""
    accounts = Accounts()
    accounts.charge(FLEET, world(NOW, machines=0))
    accounts.charge(FLEET, launched(NOW - 50, NOW + 1, NOW + 60), elapsed_s=57)
    assert accounts.spent_usd == {IDLE: pytest.approx(110 * OFFERING.offer.price_usd_h / 3600)}


def test_a_machine_that_is_seen_first_is_charged_nothing_of_the_month_before() -> None:
    turn = datetime(2027, 2, 1, tzinfo=UTC).timestamp()
    accounts = Accounts()
    accounts.charge(FLEET, world(turn - 30, machines=0))
    accounts.charge(FLEET, launched(turn - 20, turn + 20, turn + 30))
    assert accounts.spent_usd == {IDLE: pytest.approx(30 * OFFERING.offer.price_usd_h / 3600)}


def test_a_machine_whose_launch_is_told_after_a_silence_is_charged_from_its_launch_on() -> None:
    accounts = Accounts()
    accounts.charge(FLEET, world(NOW, machines=0))
    again = Accounts()
    again.restore(accounts.dump())
    again.charge(FLEET, launched(NOW - 90, NOW + 500, NOW + 600))
    assert again.spent_usd == {UNOBSERVED: pytest.approx(690 * OFFERING.offer.price_usd_h / 3600)}


def test_a_machine_whose_claim_is_written_anew_is_charged_once() -> None:
    """A claim that says it was launched in the future is put right (`fleet.clock_skew`)."""
    accounts = Accounts()
    for minute in range(4):
        accounts.charge(FLEET, launched(NOW, NOW + (400 if minute < 2 else 110), NOW + 60 * minute))
    assert accounts.spent_usd == {IDLE: pytest.approx(180 * OFFERING.offer.price_usd_h / 3600)}


def test_a_clock_that_jumps_back_charges_nothing() -> None:
    accounts = Accounts()
    accounts.charge(FLEET, world(NOW))
    accounts.charge(FLEET, world(NOW - 3600))
    accounts.charge(FLEET, world(NOW - 3600))
    assert accounts.bill.total == 0


def test_a_new_month_starts_from_nothing() -> None:
    accounts = Accounts()
    last = datetime(2027, 1, 31, 23, 59, 0, tzinfo=UTC).timestamp()
    accounts.charge(FLEET, world(last))
    accounts.charge(FLEET, world(last + 30))
    before = accounts.bill.total
    accounts.charge(FLEET, world(last + 90))
    assert accounts.month == "2027-02"
    assert 0 < accounts.bill.total <= 2 * before + 2


def test_books_come_back_as_they_were_kept() -> None:
    accounts = Accounts()
    for second in range(0, 300, 10):
        accounts.charge(FLEET, world(NOW + second, machines=3))
    again = Accounts()
    again.restore(accounts.dump())
    assert (again.month, again.bill) == (accounts.month, accounts.bill)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[" * 100_000,
        "[]",
        "{}",
        '{"month": "2027-01", "total": 5, "by_team": {"a": 4}}',
        '{"month": "2027-01", "total": 0, "by_team": {"a": 4, "b": -4}}',
        '{"month": "2027-01", "total": Infinity, "by_team": {}}',
        '{"by_team": 3}',
    ],
)
def test_books_that_cannot_be_read_are_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        Accounts().restore(text)


@pytest.mark.parametrize("until", ["NaN", "Infinity", "-Infinity", "-5", "5", "null", '"soon"', "[]", "1" + "0" * 400])
def test_books_that_do_not_say_when_they_were_charged_last_bill_nothing_again(until: str) -> None:
    """Their amounts stay; a month that was billed once more would stop teams by their budgets."""
    accounts = Accounts()
    for minute in range(61):
        accounts.charge(FLEET, world(NOW + 60 * minute))
    kept = json.loads(accounts.dump())
    del kept["until_s"]
    again = Accounts()
    again.restore(f'{json.dumps(kept)[:-1]}, "until_s": {until}}}')
    assert "when they were charged last" in again.trouble
    again.charge(FLEET, world(NOW + 3600))
    assert again.bill == accounts.bill
    again.charge(FLEET, world(NOW + 3660))
    assert again.bill.total > accounts.bill.total
    later = Accounts()
    later.restore(again.dump())
    assert later.trouble == again.trouble, "what is missing in a month is told of all month"
    later.charge(FLEET, world(datetime(2027, 2, 1, tzinfo=UTC).timestamp()))
    assert later.trouble == ""


def test_books_that_were_charged_by_a_clock_that_was_ahead_tell_of_it() -> None:
    accounts = Accounts()
    accounts.charge(FLEET, world(NOW + 7200))
    again = Accounts()
    again.restore(accounts.dump())
    again.charge(FLEET, world(NOW))
    assert "when they were charged last" in again.trouble
    again.charge(FLEET, world(NOW + 60))
    assert 0 < again.bill.total < 2 * OFFERING.offer.price_usd_h * 1e6 / 60


@given(st.lists(st.floats(0, 40_000), max_size=30))
def test_the_teams_add_up_to_the_total_whatever_the_pauses(pauses: list[float]) -> None:
    accounts, now = Accounts(), NOW
    for pause in pauses:
        now += pause
        accounts.charge(FLEET, world(now, machines=2))
        assert sum(accounts.bill.by_team.values()) == accounts.bill.total


def test_books_are_charged_once_a_second_and_saved_now_and_then() -> None:
    saved: list[str] = []
    clock = VirtualClock(NOW)
    keeper = Bookkeeper(Accounts(), saved.append, clock.monotonic, every_s=30.0)
    for _ in range(650):
        keeper.turned(FLEET, world(clock.now()))
        clock.advance(0.1)
    assert len(saved) == 3
    assert json.loads(saved[-1])["total"] > 0


def test_books_in_which_nothing_is_entered_are_not_saved_again() -> None:
    saved: list[str] = []
    clock = VirtualClock(NOW)
    keeper = Bookkeeper(Accounts(), saved.append, clock.monotonic)
    for machines in (0, 0, 1, 1, 0, 0):
        for _ in range(10):
            keeper.turned(FLEET, world(clock.now(), machines=machines))
            clock.advance(60)
    assert 20 <= len(saved) <= 22, "at the beginning, and once a minute as long as there is a machine"


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_what_is_charged_does_not_depend_on_who_sets_the_clock(step_s: float) -> None:
    clock = VirtualClock(NOW)
    keeper = Bookkeeper(Accounts(), lambda _text: None, clock.monotonic)
    for minute in range(61):
        keeper.turned(FLEET, world(clock.now() + (step_s if minute > 30 else 0.0)))
        clock.advance(60)
    assert keeper.accounts.spent_usd[IDLE] == pytest.approx(OFFERING.offer.price_usd_h, rel=1e-6)


def test_a_spot_machine_costs_what_spot_costs_now() -> None:
    """It was charged at the price of its launch for ever; that of spot moves every hour."""
    spot = next(it for it in SOLD.offers if it.capacity_type == "spot")
    claim = replace(CLAIM, capacity_pool=spot.pool_key, price_usd_h=spot.price_usd_h * 3)
    accounts = Accounts()
    for minute in range(61):
        accounts.charge(FLEET, replace(world(NOW + 60 * minute), claims={"m0": claim}))
    assert accounts.spent_usd[IDLE] == pytest.approx(spot.price_usd_h, rel=1e-6)


FAIR = (
    FleetBuilder()
    .pool()
    .team(namespaces=["ns"])
    .queue(admissionFairSharing={"namespaceWeights": {"ns": 2.0}})
    .policy(admissionFairSharing={"usageHalfLifeTime": "1h"})
    .build()
)
RUNNING = gang(state=GangState.ADMITTED, flavors={"main": ("h100",)}, quota_reserved_at_s=NOW + 60)


def used_books() -> Accounts:
    """Books that have sampled once, and seen an admission since."""
    accounts = Accounts()
    accounts.sample(FAIR, world(NOW))
    accounts.sample(FAIR, replace(world(NOW + 60), gangs={RUNNING.uid: RUNNING}))
    accounts.sample(FAIR, replace(world(NOW + 360), gangs={RUNNING.uid: RUNNING}))
    late = replace(gang("late"), state=GangState.ADMITTED, flavors=RUNNING.flavors, quota_reserved_at_s=NOW + 400)
    accounts.sample(FAIR, replace(world(NOW + 400), gangs={RUNNING.uid: RUNNING, late.uid: late}))
    return accounts


def test_use_comes_back_as_it_was_kept_so_that_no_queue_begins_anew() -> None:
    accounts = used_books()
    assert accounts.tally.accounts["ns/q"].consumed
    assert accounts.tally.accounts["ns/q"].penalty
    again = Accounts()
    again.restore(accounts.dump())
    assert (again.tally, again.local_usage) == (accounts.tally, accounts.local_usage)


def test_use_is_the_same_mapping_until_it_changes() -> None:
    accounts = used_books()
    before = accounts.local_usage
    snapshot = replace(world(NOW + 410), gangs={RUNNING.uid: RUNNING})
    accounts.sample(FAIR, snapshot)
    assert accounts.local_usage is before
    accounts.sample(FLEET, snapshot)
    assert accounts.local_usage == {}, "the policy says no more how use is remembered"


@pytest.mark.parametrize(
    "usage",
    [
        "3",
        "{}",
        '{"at_s": 1, "accounts": {"a/q": 3}, "ahead": []}',
        '{"at_s": 1, "accounts": {"a/q": {"consumed": {"cpu": -1}, "penalty": {}}}, "ahead": []}',
        '{"at_s": 1, "accounts": {"a/q": {"consumed": {"cpu": NaN}, "penalty": {}}}, "ahead": []}',
        '{"at_s": 1, "accounts": {}, "ahead": [["uid"]]}',
    ],
)
def test_use_that_cannot_be_read_is_an_error(usage: str) -> None:
    with pytest.raises(ValueError):
        Accounts().restore('{"month": "2027-01", "total": 0, "by_team": {}, "usage": ' + usage + "}")


def test_books_from_before_use_was_kept_are_read() -> None:
    accounts = Accounts()
    accounts.restore('{"month": "2027-01", "total": 4, "by_team": {"a": 4}}')
    assert accounts.local_usage == {}


def test_an_admission_is_told_before_the_next_decision() -> None:
    keeper, told = Bookkeeper(Accounts(), lambda _text: None, VirtualClock(NOW).monotonic), Mirror("c")
    keeper.turned(FAIR, world(NOW))
    keeper.turned(FAIR, replace(world(NOW + 60.1), gangs={RUNNING.uid: RUNNING}))
    keeper.inform(told)
    assert told.snapshot(NOW + 60.2, frozenset()).local_usage == keeper.accounts.local_usage
    assert set(keeper.accounts.local_usage) == {"ns/q"}


TAKEN = CapacityPool("spot", "p5.48xlarge", "us-east-1a")


def taken(at_s: float) -> Snapshot:
    """A world in which EC2 has just taken a spot machine back."""
    why = NodeDisruption("Interrupted", "x", at_s, at_s + 105)
    claim = replace(next(iter(world(NOW).claims.values())), capacity_pool=TAKEN, disruption=why)
    return replace(world(at_s), claims={claim.name: claim})


def test_interruptions_are_told_before_the_next_decision_and_come_back_as_they_were_kept() -> None:
    saved: list[str] = []
    keeper, told = Bookkeeper(Accounts(), saved.append, VirtualClock(NOW).monotonic), Mirror("c")
    keeper.turned(FLEET, taken(NOW))
    keeper.inform(told)
    assert told.snapshot(NOW + 1, frozenset()).interruptions == {TAKEN: InterruptionHistory(1.0, NOW)}
    again = Accounts()
    again.restore(saved[-1])
    assert again.interruptions == {TAKEN: InterruptionHistory(1.0, NOW)}
    again.remember(FLEET, taken(NOW))
    assert again.interruptions == {TAKEN: InterruptionHistory(1.0, NOW)}, "the same claim, seen by the next agent"


@pytest.mark.parametrize(
    "interruptions",
    ["3", "[3]", '[["spot", "p5", "a", 1]]', '[["often", "p5", "a", 1, 2]]', '[["spot", "p5", "a", -1, 2]]'],
)
def test_interruptions_that_cannot_be_read_are_an_error(interruptions: str) -> None:
    with pytest.raises(ValueError):
        Accounts().restore('{"month": "2027-01", "total": 0, "by_team": {}, "interruptions": ' + interruptions + "}")


# -- the journal ------------------------------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[tuple[Journal, Path]]:
    path = tmp_path / "deep" / "journal.jsonl"
    made = Journal(path)
    yield made, path
    made.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_journal_has_a_line_for_each_change_and_none_for_none(journal: tuple[Journal, Path]) -> None:
    made, path = journal
    known = mirror()
    made.acting(OpenGang(GANG), known, NOW)
    admitted = GANG.moved(GangState.ADMITTED, Reason.ADMITTED, "placed", NOW)
    made.acting(SaveGang(admitted), known, NOW + 1)
    made.acting(SaveGang(replace(GANG, message="another sentence")), known, NOW + 2)
    made.acting(OpenClaims((CLAIM,)), known, NOW + 3)
    made.acting(SaveClaim(replace(CLAIM, emptied_at_s=0.0)), known, NOW + 4)
    made.acting(SaveClaim(CLAIM.with_disruption(NodeDisruption(Reason.EMPTY, "idle", NOW))), known, NOW + 5)
    found = lines(path)
    assert [line["event"] for line in found] == ["queued", "gang", "claim", "machine"]
    assert (found[1]["state"], found[1]["at_s"]) == ("Admitted", NOW + 1)
    assert found[3]["reason"] == "Empty"


def test_the_journal_has_what_consolidation_has_in_mind_and_gives_up(journal: tuple[Journal, Path]) -> None:
    made, path = journal
    known = mirror()
    key = ("h100", "p5.4xlarge", "us-east-1a", "on-demand", "", 0, "")
    one, two = (Proposal((name,), (), (key,), 14.0, 84.0, "saves", NOW) for name in ("m0", "m1"))
    made.acting(Consider(Outlook((one,))), known, NOW)
    known.outlook = Outlook((one,))
    made.acting(Consider(Outlook((two,)), (Withdrawal(one, "gangs have come or gone"),)), known, NOW + 1)
    known.outlook = Outlook((two,))
    made.acting(Consider(Outlook((two,), sought=True)), known, NOW + 2)
    found = [(line["event"], line["claims"], line["message"]) for line in lines(path)]
    assert found == [
        ("proposed", ["m0"], "saves"),
        ("withdrawn", ["m0"], "gangs have come or gone"),
        ("proposed", ["m1"], "saves"),
    ]
    assert lines(path)[0]["buys"] == ["h100/p5.4xlarge/us-east-1a/on-demand//0/"]


def test_the_journal_has_what_launches_and_returns_came_to(journal: tuple[Journal, Path]) -> None:
    made, path = journal
    request = launch_request(FLEET, world(), [CLAIM])
    failure = LaunchFailure(LaunchError.SHORTAGE, "InsufficientInstanceCapacity", "none")
    launch = LaunchMachines(request, ("m0",))
    made.ended(Done(launch, outcome=LaunchOutcome(("i-1",), (failure,))), NOW)
    made.ended(Done(TerminateMachines(("i-1",), "Empty")), NOW)
    made.ended(Failed(launch, "no"), NOW)
    launched, returned = lines(path)
    assert (launched["instances"], launched["failures"]) == (["i-1"], ["InsufficientInstanceCapacity"])
    assert (returned["instances"], returned["reason"]) == (["i-1"], "Empty")


def test_a_journal_goes_on_where_an_earlier_process_stopped(tmp_path: Path) -> None:
    for _ in range(2):
        made = Journal(tmp_path / "j")
        made.acting(OpenGang(GANG), mirror(), NOW)
        made.close()
    assert len(lines(tmp_path / "j")) == 2


# -- announcements ----------------------------------------------------------------------------------------------------


def said(*actions: Any, known: Mirror | None = None) -> list[Announce]:
    heard: list[Announce] = []
    announcer, known = Announcer(heard.append), known or mirror()
    for action in actions:
        announcer.acting(action, known, NOW)
        announcer.ended(Done(action), NOW)
    return heard


def test_a_change_of_state_is_announced_on_the_job() -> None:
    (event,) = said(SaveGang(GANG.moved(GangState.RESERVED, Reason.BUYING, "buying 2 machines", NOW)))
    assert (event.about, event.reason, event.type) == (GANG.job, "Buying", "Normal")
    assert event.message == "QuotaReserved: buying 2 machines"


def test_a_gang_that_begins_to_hold_gpus_idle_is_announced_once() -> None:
    known, idle = mirror(), IdleGpus(NOW - 4000, 2, 8, 3600.0)
    running = replace(GANG, workload_uid="uid-w", idle=idle)
    told = said(SaveGang(running), known=known)
    assert [(it.about.kind, it.reason, it.type) for it in told] == [
        ("Job", "IdleGPUs", "Warning"),
        ("Workload", "IdleGPUs", "Warning"),
    ]
    assert told[0].message == "it has done nothing with 2 of its 8 GPUs or slices for 1h or longer"
    known.gangs.observe(Replace({f"{running.namespace}/{running.workload}": running}, "2"))
    assert said(SaveGang(replace(running, idle=replace(idle, idle=3))), known=known) == []


def as_far_as(state: ClaimState) -> Claim:
    """The machine when it had come so far."""
    times = ("launched_at_s", "registered_at_s", "ready_at_s")
    reached = list(ClaimState).index(state)
    found = replace(CLAIM, **{name: NOW - 10 if number < reached else 0.0 for number, name in enumerate(times)})
    assert found.state is state
    return found


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (ClaimState.PENDING, ClaimState.LAUNCHED, f"instance {CLAIM.instance_id} is launched: p5.48xlarge on-demand"),
        (ClaimState.LAUNCHED, ClaimState.REGISTERED, f"node {CLAIM.node} has joined"),
        (ClaimState.REGISTERED, ClaimState.READY, f"node {CLAIM.node} is ready with everything that it owes"),
        (ClaimState.READY, ClaimState.READY, ""),
    ],
)
def test_a_machine_that_comes_further_is_announced_on_its_claim(
    before: ClaimState, now: ClaimState, message: str
) -> None:
    known = mirror()
    known.claims.observe(Replace({"m0": as_far_as(before)}, "2"))
    told = said(SaveClaim(as_far_as(now)), known=known)
    assert [(it.about.kind, it.about.name, it.reason, it.type) for it in told] == (
        [("NodeClaim", CLAIM.name, str(now), "Normal")] if message else []
    )
    assert all(it.message.startswith(message) for it in told)


def test_a_change_is_announced_on_the_workload_as_well_once_that_has_been_made() -> None:
    """Kueue's events stand there: `kubectl describe workload` looks for its uid."""
    made = replace(GANG, workload_uid="w-1")
    first, second = said(SaveGang(made.moved(GangState.RESERVED, Reason.BUYING, "buying 2 machines", NOW)))
    assert first.about == GANG.job
    assert second == replace(first, about=JobRef("muster.dev/v1alpha1", "Workload", "ns", GANG.workload, "w-1"))


def test_a_change_that_is_not_written_is_not_announced_until_it_is() -> None:
    """Each try of a write that met a conflict was an event: the same twice, for one fact, or for none."""
    heard: list[Announce] = []
    announcer, known = Announcer(heard.append), mirror()
    for fails in (True, True, False):
        action = SaveGang(GANG.moved(GangState.RESERVED, Reason.BUYING, "buying 2 machines", NOW))
        announcer.acting(action, known, NOW)
        announcer.ended(Failed(action, "Conflict") if fails else Done(action), NOW)
    assert [it.reason for it in heard] == ["Buying"]


def test_another_deadline_of_a_machine_that_goes_is_no_news() -> None:
    going = CLAIM.with_disruption(NodeDisruption(Reason.DELETED, "somebody deleted node n", NOW))
    later = CLAIM.with_disruption(NodeDisruption(Reason.DELETED, "somebody deleted node n", NOW + 1, NOW + 60))
    known = mirror()
    known.claims.observe(Replace({"m0": going}, "2"))
    assert said(SaveClaim(later), known=known) == []


def test_the_same_state_and_reason_are_not_announced_again() -> None:
    assert said(SaveGang(replace(GANG, message="another sentence"))) == []


def test_an_eviction_is_called_so_and_shortages_are_warnings() -> None:
    evicted = GANG.moved(GangState.EVICTING, Reason.PREEMPTED, "makes room", NOW)
    short = GANG.moved(GangState.PENDING, Reason.NO_CAPACITY, "none", NOW)
    first, second = said(SaveGang(evicted), SaveGang(short))
    assert (first.reason, first.type) == ("Evicted", "Normal")
    assert (second.reason, second.type) == (str(Reason.NO_CAPACITY), "Warning")


def test_a_machine_that_is_told_to_go_is_announced_once() -> None:
    going = CLAIM.with_disruption(NodeDisruption(Reason.EMPTY, "idle for 60 s", NOW))
    (event,) = said(SaveClaim(going))
    assert (event.about.kind, event.reason, event.message) == ("NodeClaim", "Empty", "idle for 60 s")
    assert said(SaveClaim(CLAIM)) == []


# -- metrics ----------------------------------------------------------------------------------------------------------


def test_metrics_tell_how_the_fleet_stands() -> None:
    metrics = Metrics()
    running = GANG.moved(GangState.ADMITTED, Reason.RUNNING, "", NOW, flavors={"main": ("h100",)})
    used = {"ns/q": {"nvidia.com/gpu": 5.0}, "ns/other": {"nvidia.com/gpu": 9.0}}
    snapshot = replace(world(), gangs={GANG.uid: running}, spent_usd={"t": 12.5}, local_usage=used)
    metrics.turned(FAIR, snapshot)
    text = metrics.exposition().decode()
    assert 'muster_gangs{queue="q",state="Admitted"} 1.0' in text
    assert 'muster_machines{node_pool="h100",state="Ready"} 1.0' in text
    assert 'muster_quota_used{flavor="h100",queue="q",resource="nvidia.com/gpu"} 8.0' in text
    assert 'muster_spent_usd_month{team="t"} 12.5' in text
    assert 'muster_local_queue_usage{namespace="ns",queue="q"} 2.5' in text, "by weight"
    assert text.count("muster_local_queue_usage{") == 1, "of queues that go by use"
    metrics.turned(FLEET, Snapshot(now_s=NOW + 5))
    assert "muster_gangs{" not in metrics.exposition().decode(), "what is gone is not shown"


def test_metrics_count_what_is_done() -> None:
    metrics = Metrics()
    request = launch_request(FLEET, world(), [CLAIM])
    failure = LaunchFailure(LaunchError.SHORTAGE, "x", "y")
    metrics.ended(Done(LaunchMachines(request, ("m0",)), outcome=LaunchOutcome(("i-1",), (failure,))), NOW)
    metrics.ended(Done(TerminateMachines(("i-1", "i-2"), "Empty")), NOW)
    metrics.ended(Failed(TerminateMachines(("i-3",), "Empty"), "no"), NOW)
    failed = SetAside("scheduling", "gang/u", DecisionFailure("KeyError", "x"), NOW, 1)
    metrics.stumbled(failed, world())
    admitted = GANG.moved(GangState.ADMITTED, Reason.ADMITTED, "", NOW)
    evicted = SaveGang(GANG.moved(GangState.EVICTING, Reason.PREEMPTED, "", NOW))
    for action, at_s in ((SaveGang(admitted), GANG.created_at_s + 60), (evicted, NOW)):
        for ended in (Failed(action, "Conflict"), Done(action)):  # a second try is not another eviction
            metrics.acting(action, mirror(), at_s)
            metrics.ended(ended, at_s)
    waiting = GANG.moved(GangState.RESERVED, Reason.BUYING, "", NOW)
    left = SaveGang(transitions.evicted(waiting, None, Reason.RECLAIMED, "before it started", NOW))
    metrics.acting(left, mirror(), NOW)
    metrics.ended(Done(left), NOW)
    text = metrics.exposition().decode()
    for line in (
        'muster_machines_bought_total{node_pool="h100"} 1.0',
        'muster_machines_returned_total{reason="Empty"} 2.0',
        'muster_launch_failures_total{error="Shortage"} 1.0',
        'muster_actions_total{action="TerminateMachines",result="failed"} 1.0',
        'muster_decider_failures_total{decider="scheduling",kind="gang"} 1.0',
        'muster_admission_wait_seconds_sum{queue="q"} 60.0',
        'muster_evictions_total{queue="q",reason="InClusterQueue"} 1.0',
        'muster_evictions_total{queue="q",reason="InCohortReclamation"} 1.0',
    ):
        assert line in text, line


# -- the log ----------------------------------------------------------------------------------------------------------


def test_logs_are_json_lines_with_bound_fields_on_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logs("json")
    log = structlog.get_logger("test").bind(revision="r1", gang="g")
    log.debug("not shown")
    log.warning("bought", claim="c1")
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        log.exception("broken")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["event"], first["level"], first["revision"], first["gang"], first["claim"]) == (
        "bought",
        "warning",
        "r1",
        "g",
        "c1",
    )
    assert first["timestamp"].endswith("Z")
    assert "ZeroDivisionError" in second["exception"]


def test_logs_for_people_are_lines_without_colour_where_nobody_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logs("console")
    structlog.get_logger("test").info("bought", claim="c1")
    assert "bought" in stream.getvalue()
    assert "claim=c1" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
