"""The brain: one thread that folds events into the mirror, runs the deciders on a snapshot and hands out actions."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from math import inf
from operator import attrgetter, is_
from typing import Any

import structlog

from agent.assume import beliefs, believe_ending
from agent.backoff import Backoff
from agent.failures import Failures, SetAside, failure_marks
from agent.inbox import (
    Done,
    Event,
    Failed,
    GpusRead,
    InstancesListed,
    NamesResolved,
    Noticed,
    Observed,
    Planned,
    Priced,
    ReservationsListed,
    Tick,
)
from agent.mirror import Mirror
from agent.sync import Sync
from agent.watch import Watcher
from agent.workers import Performer
from fleet.actions import (
    Action,
    Consider,
    EvictPod,
    LaunchMachines,
    NominatePods,
    PublishLayouts,
    SaveClaim,
    SaveGang,
    TagMachine,
    TerminateMachines,
    claim_subject,
    gang_subject,
    instance_subject,
    revision_subject,
)
from fleet.deciders import DECIDERS, Decider
from fleet.fence import EVERYBODY, DecisionFailed, told_apart
from fleet.nodeclaims.interruption import ADVICE, respond
from fleet.nodeclaims.launch_outcome import settle
from fleet.placement.all_devices import under_fleet
from fleet.replay.deadlines import due_again_s
from fleet.snapshot import Job, Notice, PublishedLayouts, Snapshot
from model.fleet import Fleet
from providers.clock import Clock
from providers.kube.batches import Batch, DeltaKind, Replace

log = structlog.get_logger(__name__)

Planner = Callable[[Callable[[], Event]], None]
"""Carries out a job that takes its time, and sees to it that the brain hears what comes of it."""


VANISHED_PAUSE_S = 3.0
"""A job is not opened anew this soon after its Workload went away by another hand."""
UNWRITTEN_PAUSE_S = 1.0
"""What could not be written down is not done again (a launch whose answer was not kept) this soon."""
_OF_TIME = frozenset(
    {"now_s", "instances_at_s", "reservations_at_s", "spent_usd", "busy", "refused", "outlook", "index"}
)
"""Fields of a snapshot that change while nothing happens, or with what the brain itself does."""
_known = attrgetter(*(it.name for it in fields(Snapshot) if it.name not in _OF_TIME))
"""What a snapshot tells of the world."""
_NOBODY: frozenset[str] = frozenset()
_LISTS = (Observed, InstancesListed, ReservationsListed, NamesResolved)
"""Events that often say again what is known."""


class Brain:
    """Owns the mirror. `hear` and `turn` are called by one thread only."""

    def __init__(
        self,
        mirror: Mirror,
        sync: Sync,
        workers: Performer,
        clock: Clock,
        *,
        watchers: Sequence[Watcher] = (),
        acknowledge: Callable[[Sequence[Notice]], None] = lambda _notices: None,
        planner: Planner | None = None,
        failures: Failures | None = None,
    ) -> None:
        """`planner` None: revisions are planned within the turn, for whoever steps a brain by hand."""
        self.mirror = mirror
        self.sync = sync
        self.failures = Failures() if failures is None else failures
        self._workers = workers
        self._clock = clock
        self._watchers = watchers
        self._acknowledge = acknowledge
        self._planner: Planner = planner or (lambda job: self.hear(job()))
        self._under_way: dict[str, int] = {}
        self._backoff = Backoff()
        self._saves = Backoff()
        """Pauses after saves that failed: a pause after any other write is no reason not to write down why."""
        self._notices: list[Notice] = []
        self._watchers_failed: dict[str, DecisionFailed] = {}
        self._heard_news = True
        self._decided_on: Snapshot | None = None

    @property
    def stirred(self) -> bool:
        """Whether there is a reason to decide anew: a tick, news, or a change of what was known in the last turn.

        Watches and listings mostly tell what is known, or what nobody decides by; that waits for the next tick.
        """
        if self._heard_news or self._decided_on is None or not self.mirror.synced:
            return True
        return not all(map(is_, _known(self._decided_on), _known(self._snapshot())))

    @property
    def due_s(self) -> float:
        """When the deciders are to be asked again though nothing is heard (epoch seconds); now or before = at once."""
        now_s, fleet, left = self._clock.now(), self.sync.fleet, self.sync.state.convergence
        if fleet is None or not self.mirror.synced or (left is not None and not left.counted):
            return now_s
        if self._under_way or self._notices or self.failures:
            return now_s
        stalls_at_s = left.stalls_at_s if left is not None else inf
        ends = (self._backoff.ends_s, self._saves.ends_s, self.sync.look_again_s, stalls_at_s)
        own = (at_s for at_s in ends if at_s > now_s)
        return min((due_again_s(fleet, self._snapshot()), *own))

    @property
    def idle(self) -> bool:
        """Whether no action is under way."""
        return not self._under_way

    @property
    def ready(self) -> bool:
        """Whether enough is known to decide: everything listed once and a fleet in force."""
        return self.mirror.synced and self.sync.fleet is not None

    def hear(self, event: Event) -> None:
        """Fold one event."""
        self._heard_news |= not isinstance(event, _LISTS)
        match event:
            case Observed(table=table, batch=batch):
                if table == "gangs":
                    self._pause_vanished(batch)
                self.mirror.table(table).observe(batch)
                if table in self.mirror.works:
                    self._resume_vanished(batch)
            case InstancesListed() | ReservationsListed() | NamesResolved() | Priced() | GpusRead():
                self._listed(event)
            case Noticed(notices=notices):
                self._notices += notices
            case Planned():
                self._planned(event)
            case Done() | Failed():
                self._ended(event)
            case Tick():
                self.mirror.expire(self._clock.now())
                self.failures.writes.forget(self._clock.now())
            case _:
                self.sync.hear(event)

    def _listed(self, event: InstancesListed | ReservationsListed | NamesResolved | Priced | GpusRead) -> None:
        """Fold what was asked for beside the cluster."""
        match event:
            case InstancesListed(instances=instances, at_s=at_s):
                self.mirror.list_instances(instances, at_s)
            case ReservationsListed(reservations=reservations, at_s=at_s):
                self.mirror.list_reservations(reservations, at_s)
            case NamesResolved(resolved=resolved):
                self.mirror.resolve(resolved)
            case Priced(catalog=catalog):
                self.mirror.catalog = catalog
            case GpusRead(uses=uses, faults=faults, holders=holders, trouble=trouble):
                self.mirror.gpu_uses, self.mirror.gpu_faults, self.failures.readings = uses, faults, trouble
                self.mirror.gpu_holders = holders

    def _pause_vanished(self, batch: Batch[Any]) -> None:
        """A Workload that somebody else deleted most likely goes with its job, whose deletion may be yet to be seen.

        Till then its gang is left alone, and for a while it is believed to hold its places: its pods still run there.
        """
        if isinstance(batch, Replace):
            return
        now, gangs = self._clock.now(), self.mirror.gangs
        for delta in batch.deltas:
            if delta.kind is DeltaKind.DELETED and (gang := gangs.current.get(delta.key)) is not None:
                if self.mirror.still_asks(gang):
                    self._backoff.pause(gang_subject(delta.object.uid), now + VANISHED_PAUSE_S)
                if gang.pins:
                    gangs.assume(delta.key, gang, now, lambda shown: shown is not None, VANISHED_PAUSE_S)

    def _resume_vanished(self, batch: Batch[Job]) -> None:
        """A job that is gone is not opened anew: its gang is done with as soon as its pods have ended."""
        for delta in () if isinstance(batch, Replace) else batch.deltas:
            if delta.kind is DeltaKind.DELETED:
                self._backoff.succeeded(gang_subject(delta.object.ref.uid))

    def turn(self) -> None:
        """One pass: see to the revision, then let every decider speak."""
        self._heard_news = False
        if not self.mirror.synced:
            return
        observed = self._observed()
        seen = self._decided_on = self._under_fleet(observed)
        while (job := self.sync.due(observed, self._clock.now())) is not None:
            self._planner(job)
            observed = self._observed()
            seen = self._under_fleet(observed)
        if self._answer_notices():
            seen = self._snapshot()
        fleet = self.sync.fleet
        if fleet is None or self.sync.holds_decisions:
            return
        self._tell(lambda watcher: watcher.turning(fleet, seen))
        snapshot = self._mark_failures(self._decide(fleet, seen))
        self._tell(lambda watcher: watcher.turned(fleet, snapshot))
        self._note("watchers", list(self._watchers_failed.values()))
        self._watchers_failed.clear()

    def _planned(self, event: Planned) -> None:
        failed = [DecisionFailed(revision_subject(event.pushed.revision), event.error)] if event.error else []
        self._note("planning", failed)
        for action in self.sync.judge(event, self._clock.now()):
            self._act(action)

    def _decide(self, fleet: Fleet, snapshot: Snapshot) -> Snapshot:
        """Lets every decider speak; what is believed afterwards. Later ones see what earlier ones asked for."""
        for name, decide in DECIDERS.items():
            actions = self._decided(name, decide, fleet, snapshot)
            snapshot = self._acted(actions, snapshot)
        return snapshot

    def _acted(self, actions: Sequence[Action], snapshot: Snapshot) -> Snapshot:
        """What is believed once these are under way."""
        for action in actions:
            self._act(action)
        return self._snapshot() if actions else snapshot

    def _decided(self, name: str, decide: Decider, fleet: Fleet, snapshot: Snapshot) -> Sequence[Action]:
        """What one decider asks for. Subjects it fails on are set aside for a while; the others are decided."""
        paused = self.failures.paused(name, self._clock.now()) if self.failures else _NOBODY
        if EVERYBODY in paused:
            return ()
        try:
            decided = list(decide(fleet, replace(snapshot, set_aside=paused) if paused else snapshot))
        except Exception as error:  # noqa: BLE001  the decider's fence: nothing is known of whom it was about
            decided = [DecisionFailed(EVERYBODY, error)]
        actions, failed = told_apart(decided)
        self._note(name, failed, paused)
        return actions

    def _note(self, decider: str, failed: Sequence[DecisionFailed], paused: frozenset[str] = frozenset()) -> None:
        """Write down what a decider failed on, and tell of it: with its stack once, until it fails otherwise."""
        if not failed and not self.failures:
            return
        known = {it.subject: it.failure for it in self.failures if it.decider == decider}
        errors = {it.subject: it.error for it in failed}
        for found in self.failures.settle(decider, failed, paused, self._clock.now()):
            if known.get(found.subject) != found.failure:
                log.error("decision_failed", decider=decider, subject=found.subject, exc_info=errors[found.subject])
            self._tell_of(found)

    def _tell_of(self, found: SetAside) -> None:
        self._tell(lambda watcher: watcher.stumbled(found, self._snapshot()))

    def _mark_failures(self, snapshot: Snapshot) -> Snapshot:
        """Let the conditions `DecisionFailed` and `WriteRefused` of every gang and claim say what is so now."""
        silent = self._saves.pausing(self._clock.now()) | self._under_way.keys()
        marks = [it for it in failure_marks(self.failures, snapshot) if silent.isdisjoint(it.subjects)]
        return self._acted(marks, snapshot)

    def _tell(self, say: Callable[[Watcher], None]) -> None:
        """Let every watcher hear. They only look on: one that fails (a full disk) must not stop the work."""
        for watcher in self._watchers:
            try:
                say(watcher)
            except Exception as error:  # noqa: BLE001  the watcher's fence
                subject = f"watcher/{type(watcher).__name__}"
                self._watchers_failed[subject] = DecisionFailed(subject, error)

    def _snapshot(self) -> Snapshot:
        """What the deciders see: what is observed, under the fleet in force."""
        return self._under_fleet(self._observed())

    def _under_fleet(self, observed: Snapshot) -> Snapshot:
        fleet = self.sync.fleet
        return observed if fleet is None else under_fleet(fleet, observed)

    def _observed(self) -> Snapshot:
        now = self._clock.now()
        self.mirror.rollout, self.mirror.layout_records = self.sync.state.rollout, self.sync.state.layouts
        snapshot = self.mirror.snapshot(now, frozenset(self._under_way) | self._backoff.pausing(now))
        return replace(snapshot, refused=refused) if (refused := self.failures.writes.starts_refused()) else snapshot

    def _answer_notices(self) -> bool:
        """Write down what notices lead to; the queue forgets them when it is written, and tells again after a crash.

        Advice waits until it is known which pools act on it. Returns whether there were any.
        """
        if not self._notices:
            return False
        fleet = self.sync.fleet
        heard = [it for it in self._notices if fleet is not None or it.kind not in ADVICE]
        if not heard:
            return False
        paused = self.failures.paused("interruption", self._clock.now())
        snapshot = replace(self._snapshot(), set_aside=paused)
        response = respond(heard, snapshot, fleet.node_pools if fleet is not None else {})
        self._note("interruption", response.failed, paused)
        aside = paused | {it.subject for it in response.failed}
        heard = [it for it in heard if aside.isdisjoint(map(instance_subject, it.instance_ids))]
        self.mirror.shortages = {**self.mirror.shortages, **response.shortages}
        named = {instance_id for notice in heard for instance_id in notice.instance_ids}
        writing = any(
            claim_subject(claim.name) in self._under_way
            for claim in snapshot.claims.values()
            if claim.instance_id in named
        )
        pausing = self._saves.pausing(self._clock.now())
        for action in response.actions:
            if (pausing | self._under_way.keys()).isdisjoint(action.subjects):
                self._act(action)
        if heard and not writing and not response.actions:
            self._acknowledge(heard)
            self._notices = [it for it in self._notices if it not in heard]
        return True

    def _act(self, action: Action) -> None:
        now = self._clock.now()
        self._tell(lambda watcher: watcher.acting(action, self.mirror, now))
        if isinstance(action, Consider):
            self.mirror.outlook = action.outlook
            return
        if isinstance(action, NominatePods):
            self.mirror.pod_verdicts = action.verdicts
            return
        for subject in action.subjects:
            self._under_way[subject] = self._under_way.get(subject, 0) + 1
        for table, key, value in beliefs(action, self.mirror):
            table.assume(key, value, now)
        self._workers.submit(action)

    def _ended(self, event: Done | Failed) -> None:
        self._release(event.action)
        if isinstance(event, Done):
            self._done(event)
        else:
            self._failed(event)

    def _done(self, event: Done) -> None:
        for subject in event.action.subjects:
            self._backoff.succeeded(subject)
            if isinstance(event.action, SaveGang | SaveClaim):
                self._saves.succeeded(subject)
        self.failures.writes.done(event, self.mirror)
        expected = {key: table for table, key, _ in beliefs(event.action, self.mirror)}
        written = {write.key: write for write in event.written}
        for key, table in expected.items():
            if key in written:
                table.confirm(key, written[key].version, written[key].value)
        if isinstance(event.action, TerminateMachines):
            self.mirror.give_back(event.action.instance_ids, self._clock.now())
        elif isinstance(event.action, EvictPod):
            believe_ending(event.action, self.mirror, self._clock.now())
        elif isinstance(event.action, TagMachine):
            self.mirror.tagged(event.action.instance_id, event.action.tags)
        elif isinstance(event.action, PublishLayouts):
            layouts = event.action
            self.mirror.layouts = PublishedLayouts(layouts.config, self._clock.now(), layouts.carried, layouts.sharing)
        self._tell(lambda watcher: watcher.ended(event, self._clock.now()))
        if isinstance(event.action, LaunchMachines):
            self._settle_launch(event, event.action)

    def _settle_launch(self, event: Done, action: LaunchMachines) -> None:
        if event.outcome is None:
            raise TypeError("a launch ends with an outcome")
        self.mirror.note_bought(event.outcome.instances)
        snapshot = self._snapshot()
        lot = [snapshot.claims[name] for name in action.claims if name in snapshot.claims]
        if not lot:
            return  # nobody answers for them any more: garbage collection gives them back
        try:
            settlement = settle(event.outcome, lot, snapshot)
        except Exception as error:  # noqa: BLE001  the lot's fence: asked again, EC2 repeats its answer
            self._note("launch", [DecisionFailed(claim_subject(claim.name), error) for claim in lot])
            for subject in action.subjects:
                self._backoff.failed(subject, snapshot.now_s)
            return
        self._note("launch", [])
        self.mirror.shortages = {**self.mirror.shortages, **settlement.shortages}
        if settlement.ask_again:
            for subject in action.subjects:
                self._backoff.failed(subject, snapshot.now_s)
        for following in settlement.actions:
            self._act(following)

    def _failed(self, event: Failed) -> None:
        now = self._clock.now()
        for subject in event.action.subjects:
            self._backoff.failed(subject, now)
            if isinstance(event.action, SaveGang | SaveClaim):
                self._saves.failed(subject, now)
                self._backoff.pause(subject, now + UNWRITTEN_PAUSE_S)
        for table, key, _ in beliefs(event.action, self.mirror):
            table.reject(key)
        self._tell(lambda watcher: watcher.ended(event, now))
        if (write := self.failures.writes.failed(event, self.mirror, now)) is not None:
            self._tell(lambda watcher: watcher.write_refused(write, self._snapshot()))
        log.warning(
            "action_failed", action=type(event.action).__name__, subjects=event.action.subjects, why=event.error
        )

    def _release(self, action: Action) -> None:
        for subject in action.subjects:
            left = self._under_way.get(subject, 0) - 1
            if left > 0:
                self._under_way[subject] = left
            else:
                self._under_way.pop(subject, None)
