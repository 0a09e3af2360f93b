"""The brain: what it hears, whom it tells, what it leaves alone, and that nothing it calls can stop it."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest

from agent import brain as brain_module
from agent.backoff import BASE_S, MOST_S, Backoff
from agent.brain import Brain
from agent.failures import SetAside
from agent.inbox import Done, Failed, InstancesListed, Noticed, Observed, Priced, Pushed, ReservationsListed, Tick
from agent.mirror import Mirror
from agent.sources import WATCHED
from agent.sync import Sync
from agent.watch import Watcher
from fleet.actions import (
    Action,
    Consider,
    LaunchMachines,
    OpenClaims,
    SaveClaim,
    SaveGang,
    TerminateMachines,
    claim_subject,
)
from fleet.plan.convergence import Convergence, ConvergencePhase, began
from fleet.snapshot import (
    ClaimState,
    GangState,
    LaunchError,
    LaunchFailure,
    LaunchOutcome,
    Notice,
    NoticeKind,
    Outlook,
    Proposal,
    Snapshot,
)
from model.fleet import Fleet
from providers.clock import VirtualClock
from providers.kube.actuator import WrittenObject
from providers.kube.batches import Changes, Replace
from tests.agent.scenes import CATALOG, simple
from tests.support.fleets import NOW, gang, instance_of, job_of, node_of, offering, ready_claim

TABLES = tuple(WATCHED)


class GivenActions:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[Action] = []

    def submit(self, action: Action) -> None:
        self.given.append(action)

    def take(self, *kinds: type) -> list[Action]:
        taken, self.given = self.given, []
        return [action for action in taken if not kinds or isinstance(action, kinds)]


class BrainWorld:
    """A brain with a fleet in force, on an empty world."""

    def __init__(self, *watchers: Watcher) -> None:
        self.clock = VirtualClock(NOW)
        self.workers = GivenActions()
        self.acknowledged: list[Notice] = []
        self.brain = Brain(
            Mirror("default"),
            Sync(),
            self.workers,
            self.clock,
            watchers=watchers,
            acknowledge=self.acknowledged.extend,
        )
        for table in TABLES:
            self.sees(table)
        self.brain.hear(InstancesListed((), NOW))
        self.brain.hear(ReservationsListed((), NOW))
        self.brain.hear(Priced(CATALOG))
        self.brain.hear(Pushed("r1", {k: v.encode() for k, v in simple().items()}))
        self.brain.turn()
        assert self.brain.ready
        self.workers.take()

    def sees(self, table: str, **objects: object) -> None:
        self.brain.hear(Observed(table, Replace(objects, "1")))

    def fleet(self) -> Fleet:
        assert self.brain.sync.fleet is not None
        return self.brain.sync.fleet

    def submits(self, name: str = "g") -> None:
        found = gang(name, queue="t", namespace="t", gpu=8, priority_class="normal", priority=100)
        self.sees("jobs.batch", **{found.uid: job_of(found)})
        self.sees("gangs", **{f"t/{found.workload}": found})


def test_without_everything_listed_once_it_does_nothing() -> None:
    workers = GivenActions()
    brain = Brain(Mirror("c"), Sync(), workers, VirtualClock(NOW))
    brain.hear(Pushed("r1", {k: v.encode() for k, v in simple().items()}))
    brain.turn()
    assert not brain.ready
    assert brain.sync.fleet is None
    assert workers.given == []


def test_what_is_under_way_is_left_alone_until_the_answer() -> None:
    world = BrainWorld()
    world.submits()
    world.brain.turn()
    first = world.workers.take()
    assert [type(action) for action in first] == [SaveGang, OpenClaims]
    assert not world.brain.idle
    world.brain.turn()
    assert world.workers.take() == []
    for action in first:
        world.brain.hear(Done(action))
    assert world.brain.idle


def test_intent_is_written_before_money_is_spent() -> None:
    world = BrainWorld()
    world.submits()
    world.brain.turn()
    save, intent = world.workers.take()
    assert isinstance(intent, OpenClaims)
    world.brain.hear(Done(save))
    world.brain.turn()
    assert world.workers.take(LaunchMachines) == []
    claims = [replace(claim, uid=f"uid-{claim.name}") for claim in intent.claims]
    world.brain.hear(Done(intent, tuple(WrittenObject(claim.name, "7", claim) for claim in claims)))
    world.brain.turn()
    launches = world.workers.take(LaunchMachines)
    assert len(launches) == 1


def launching(world: BrainWorld) -> LaunchMachines:
    world.submits()
    world.brain.turn()
    save, intent = world.workers.take()
    assert isinstance(intent, OpenClaims)
    world.brain.hear(Done(save))
    claims = [replace(claim, uid=f"uid-{claim.name}") for claim in intent.claims]
    world.brain.hear(Done(intent, tuple(WrittenObject(claim.name, "7", claim) for claim in claims)))
    world.brain.turn()
    (launch,) = world.workers.take(LaunchMachines)
    assert isinstance(launch, LaunchMachines)
    return launch


def test_a_launch_that_succeeds_names_its_machines() -> None:
    world = BrainWorld()
    launch = launching(world)
    world.brain.hear(Done(launch, outcome=LaunchOutcome(("i-1",))))
    (saved,) = world.workers.take()
    assert isinstance(saved, SaveClaim)
    assert (saved.claim.instance_id, saved.claim.state) == ("i-1", ClaimState.LAUNCHED)


def test_a_shortage_is_remembered_and_the_claims_given_up() -> None:
    world = BrainWorld()
    launch = launching(world)
    failure = LaunchFailure(LaunchError.SHORTAGE, "InsufficientInstanceCapacity", "none")
    world.brain.hear(Done(launch, outcome=LaunchOutcome((), (failure,))))
    assert launch.request.pool in world.brain.mirror.shortages
    (saved,) = world.workers.take()
    assert isinstance(saved, SaveClaim)
    assert saved.claim.disruption is not None


@pytest.mark.parametrize("error", [LaunchError.UNKNOWN, LaunchError.THROTTLED])
def test_an_unknown_outcome_is_asked_for_again_after_a_pause_with_the_same_token(error: LaunchError) -> None:
    world = BrainWorld()
    launch = launching(world)
    world.brain.hear(Done(launch, outcome=LaunchOutcome((), (LaunchFailure(error, "x", "y"),))))
    world.brain.turn()
    assert world.workers.take() == []
    world.clock.advance(BASE_S + 0.01)
    world.brain.turn()
    (again,) = world.workers.take(LaunchMachines)
    assert isinstance(again, LaunchMachines)
    assert again.request.token == launch.request.token


def test_an_answer_for_claims_that_are_gone_is_left_to_garbage_collection() -> None:
    world = BrainWorld()
    launch = launching(world)
    for name in launch.claims:
        world.brain.mirror.claims._assumptions.pop(name, None)
    world.sees("claims")
    world.brain.hear(Done(launch, outcome=LaunchOutcome(("i-1",))))
    assert world.workers.take() == []


def test_a_failure_takes_the_belief_back_and_pauses_longer_each_time() -> None:
    world = BrainWorld()
    world.submits()
    pauses = []
    for _ in range(4):
        world.brain.turn()
        save, *rest = world.workers.take()
        assert isinstance(save, SaveGang)
        assert world.brain.mirror.gangs.current["t/job-g"].state is GangState.RESERVED
        for action in (save, *rest):
            world.brain.hear(Failed(action, "no"))
        assert world.brain.mirror.gangs.current["t/job-g"].state is GangState.PENDING
        waited = 0.0
        while not world.workers.given:
            world.clock.advance(0.05)
            waited += 0.05
            world.brain.turn()
        pauses.append(waited)
        world.brain.hear(Failed(world.workers.given[0], "no"))
        for action in world.workers.take()[1:]:
            world.brain.hear(Failed(action, "no"))
        world.clock.advance(MOST_S)
    assert pauses == sorted(pauses)
    assert pauses[-1] > pauses[0]


def test_a_decider_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class FaultListener(Watcher):
        def __init__(self) -> None:
            self.heard: list[SetAside] = []

        def stumbled(self, found: SetAside, snapshot: Snapshot) -> None:
            self.heard.append(found)

    def broken(_fleet: Fleet, _snapshot: Snapshot) -> Sequence[Action]:
        raise ZeroDivisionError

    listener = FaultListener()
    world = BrainWorld(listener)
    world.submits()
    monkeypatch.setattr(brain_module, "DECIDERS", {"broken": broken, **brain_module.DECIDERS})
    world.brain.turn()
    assert world.workers.take(SaveGang)
    (found,) = listener.heard
    assert (found.decider, found.kind, found.failure.error) == ("broken", "decider", "ZeroDivisionError")
    world.brain.turn()
    assert len(listener.heard) == 1, "it is not even asked for a while"
    world.clock.advance(1.0)
    world.brain.turn()
    assert [it.times for it in listener.heard] == [1, 2]


def test_only_what_changes_something_or_a_tick_calls_for_a_turn() -> None:
    world = BrainWorld()
    world.submits()
    assert world.brain.stirred
    world.brain.turn()
    for action in world.workers.take():
        world.brain.hear(Done(action))
    world.brain.turn()  # sees what the first has proposed
    world.brain.turn()
    assert not world.brain.stirred

    world.brain.hear(InstancesListed((), NOW + 10.0))
    world.brain.hear(ReservationsListed((), NOW + 10.0))
    world.brain.hear(Observed("namespaces", Changes((), "2")))
    world.clock.advance(10.0)
    assert not world.brain.stirred, "they say what is known"

    it = offering(world.fleet(), CATALOG, "h100", "p5.48xlarge", "us-east-1a", "on-demand")
    world.brain.hear(InstancesListed((instance_of(ready_claim(it, "n")),), NOW + 20.0))
    assert world.brain.stirred
    world.brain.turn()
    world.brain.hear(Tick())
    assert world.brain.stirred, "time alone is a reason"


@pytest.mark.parametrize(
    ("left", "due_in_s"),
    [
        pytest.param(began("r1", NOW), 0.0, id="nobody has counted"),
        pytest.param(Convergence("r1", NOW, NOW - 60.0, total=2, left=2), 840.0, id="until it is stalled"),
        pytest.param(Convergence("r1", NOW, NOW - 900.0, ConvergencePhase.STALLED, 2, 2), inf, id="stalled"),
        pytest.param(Convergence("r1", NOW, NOW - 900.0, ConvergencePhase.DONE), inf, id="done"),
    ],
)
def test_what_waits_of_a_revision_is_not_looked_at_every_second(left: Convergence, due_in_s: float) -> None:
    world = BrainWorld()
    world.brain.sync.state = replace(world.brain.sync.state, convergence=left)
    assert world.brain.due_s - NOW == due_in_s


def test_a_watcher_that_fails_stops_nothing() -> None:
    class Full(Watcher):
        def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
            raise OSError(28, "No space left on device")

        ended = turned = acting  # type: ignore[assignment]

    world = BrainWorld(Full())
    world.submits()
    world.brain.turn()
    (save, *_) = world.workers.take(SaveGang)
    world.brain.hear(Done(save))
    world.brain.hear(Failed(save, "no"))


def test_a_revision_that_cannot_be_judged_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = BrainWorld()
    world.submits()

    def broken(*_args: object, **_named: object) -> None:
        raise RecursionError

    monkeypatch.setattr("agent.planning.make_plan", broken)
    world.brain.hear(Pushed("r2", {k: v.encode() for k, v in simple().items()}))
    world.brain.turn()
    assert world.workers.take(SaveGang)
    assert (world.brain.sync.state.outcome, world.brain.sync.state.applied) == ("PlanningFailed", "r1")
    assert [it.subject for it in world.brain.failures] == ["revision/r2"]


# -- notices ----------------------------------------------------------------------------------------------------------


def with_machine(world: BrainWorld) -> str:
    it = offering(world.fleet(), CATALOG, "h100", "p5.48xlarge", "us-east-1a", "on-demand")
    claim = ready_claim(it, "m0", at_s=NOW - 10)
    world.sees("claims", m0=claim)
    world.sees("nodes", **{claim.node: node_of(claim, it)})
    world.brain.hear(InstancesListed((instance_of(claim),), NOW))
    return claim.instance_id


def notice(instance_id: str, name: str = "n1") -> Notice:
    return Notice(name, NoticeKind.SPOT_INTERRUPTED, (instance_id,), NOW, NOW + 120)


def test_a_notice_is_acknowledged_once_what_follows_is_written() -> None:
    world = BrainWorld()
    told = notice(with_machine(world))
    world.brain.hear(Noticed((told,)))
    assert world.acknowledged == []
    world.brain.turn()
    (saved,) = world.workers.take(SaveClaim)
    assert isinstance(saved, SaveClaim)
    assert saved.claim.disruption is not None
    assert world.acknowledged == [], "a crash now brings it again"
    world.brain.hear(Failed(saved, "no answer"))
    world.brain.turn()
    assert world.workers.take() == [], "an API server that is overloaded is not asked again at once"
    world.clock.advance(BASE_S)
    world.brain.turn()
    (again,) = world.workers.take(SaveClaim)
    world.brain.hear(Done(again))
    world.brain.turn()
    assert world.acknowledged == [told]


def test_a_notice_about_a_busy_machine_waits_unacknowledged() -> None:
    world = BrainWorld()
    told = notice(with_machine(world))
    world.brain._under_way[claim_subject("m0")] = 1
    world.brain.hear(Noticed((told,)))
    world.brain.turn()
    assert (world.workers.take(), world.acknowledged) == ([], [])
    world.brain._under_way.clear()
    world.brain.turn()
    (saved,) = world.workers.take(SaveClaim)
    world.brain.hear(Done(saved))
    world.brain.turn()
    assert world.acknowledged == [told]


def test_advice_waits_until_it_is_known_which_pools_act_on_it_and_warnings_do_not() -> None:
    world = BrainWorld()
    it = offering(world.fleet(), CATALOG, "h100", "p5.48xlarge", "us-east-1a", "on-demand")
    acting = simple(disruption={"onRebalance": "Replace"})
    warned, advised = (ready_claim(it, name, at_s=NOW - 10) for name in ("m0", "m1"))
    world.sees("claims", m0=warned, m1=advised)
    brain = world.brain
    brain.sync = Sync()
    warning = notice(warned.instance_id)
    advice = Notice("n2", NoticeKind.REBALANCE_RECOMMENDATION, (advised.instance_id,), NOW)
    brain.hear(Noticed((advice, warning)))

    def written() -> list[str]:
        brain.turn()
        saved = [action for action in world.workers.take() if isinstance(action, SaveClaim)]
        for action in saved:
            brain.hear(Done(action))
        brain.turn()
        return [action.claim.name for action in saved if action.claim.advised_at_s or action.claim.disruption]

    assert (written(), world.acknowledged) == (["m0"], [warning])
    brain.hear(Pushed("r1", {path: text.encode() for path, text in acting.items()}))
    assert "m1" in written()
    assert world.acknowledged == [warning, advice]


def test_a_notice_twice_is_acted_on_once() -> None:
    world = BrainWorld()
    machine = with_machine(world)
    for name in ("n1", "n2"):
        world.brain.hear(Noticed((notice(machine, name),)))
    world.brain.turn()
    (saved,) = world.workers.take(SaveClaim)
    world.brain.hear(Done(saved))
    world.brain.turn()
    assert len(world.acknowledged) == 2


def test_a_machine_given_back_is_not_given_back_again_before_the_next_listing() -> None:
    world = BrainWorld()
    action = TerminateMachines(("i-new",), "Empty")
    world.brain.hear(Done(action))
    assert world.brain.mirror.instances["i-new"].gone


def test_ticks_let_old_assumptions_go() -> None:
    world = BrainWorld()
    world.brain.mirror.gangs.assume("t/x", gang("x"), world.clock.now())
    world.clock.advance(31)
    world.brain.hear(Tick())
    assert "t/x" not in world.brain.mirror.gangs.current


# -- pauses -----------------------------------------------------------------------------------------------------------


def test_pauses_double_to_a_limit_and_a_success_forgets_them() -> None:
    backoff = Backoff()
    lengths = []
    now = 0.0
    for _ in range(14):
        backoff.failed("s", now)
        until = backoff._until["s"]
        lengths.append(until - now)
        assert backoff.pausing(until - 0.001) == {"s"}
        assert backoff.pausing(until) == frozenset()
        now = until
    bounds = [min(MOST_S, BASE_S * 2**n) for n in range(14)]
    assert all(bound / 2 <= length <= bound for length, bound in zip(lengths, bounds, strict=True))
    backoff.succeeded("s")
    backoff.failed("s", now)
    assert backoff._until["s"] - now == pytest.approx(lengths[0])


def test_what_failed_together_does_not_come_again_together() -> None:
    backoff = Backoff()
    for number in range(100):
        backoff.failed(f"claim/{number}", 0.0)
    assert len(set(backoff._until.values())) == 100


def test_pauses_are_each_subject_s_own() -> None:
    backoff = Backoff()
    backoff.failed("a", 0.0)
    assert backoff.pausing(0.1) == {"a"}


def test_what_is_considered_is_remembered_and_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    proposal = Proposal(("m0",), ("uid-g",), (), 0.0, 98.0, "its work fits elsewhere", NOW)
    outlook = Outlook((proposal,))
    seen: list[Outlook] = []
    told: list[Action] = []

    class ActionListener(Watcher):
        def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
            told.append(action)

    def decide(_fleet: Fleet, snapshot: Snapshot) -> Sequence[Action]:
        seen.append(snapshot.outlook)
        return [Consider(outlook)] if snapshot.outlook != outlook else []

    monkeypatch.setattr(brain_module, "DECIDERS", {"one": decide})
    world = BrainWorld(ActionListener())
    world.brain.turn()
    assert seen == [Outlook(), outlook]
    assert told == [Consider(outlook)]
    assert world.workers.take() == []
    assert world.brain.idle
    world.brain.mirror = Mirror("default")
    assert world.brain.mirror.snapshot(NOW, frozenset()).outlook == Outlook(), "a new process has nothing in mind"
