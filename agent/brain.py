"""The brain: one thread that folds events into the mirror, runs the deciders on a snapshot and hands out actions."""

from collections.abc import Callable, Sequence
from typing import Any

import structlog

from agent.assume import beliefs
from agent.backoff import Backoff
from agent.inbox import (
    Done,
    Event,
    Failed,
    InstancesListed,
    NamesResolved,
    Noticed,
    Observed,
    Priced,
    Pushed,
    ReservationsListed,
    RevisionLost,
    SourceTrouble,
    SourceWell,
    Tick,
)
from agent.mirror import Mirror
from agent.sync import Sync
from agent.watch import Watcher
from agent.workers import Performer
from fleet import disruption as disrupt
from fleet.actions import (
    Action,
    Consider,
    LaunchMachines,
    TagMachine,
    TerminateMachines,
    claim_subject,
    gang_subject,
)
from fleet.disruption import rollout
from fleet.gangs import lifecycle as gang_lifecycle
from fleet.nodeclaims import adoption, ending, fixed
from fleet.nodeclaims import lifecycle as claim_lifecycle
from fleet.nodeclaims.interruption import ADVICE, respond
from fleet.nodeclaims.launch import settle
from fleet.scheduling import cycle
from fleet.snapshot import Notice, Snapshot
from model.fleet import Fleet
from providers.clock import Clock
from providers.kube.batches import Batch, DeltaKind, Replace

log = structlog.get_logger(__name__)

Decider = Callable[[Fleet, Snapshot], Sequence[Action]]
DECIDERS: tuple[Decider, ...] = (
    gang_lifecycle.decide,
    claim_lifecycle.decide,
    adoption.decide,
    ending.decide,
    rollout.decide,
    cycle.decide,
    fixed.decide,
    disrupt.decide,
)
"""In this order, each on what the ones before will have made of the world."""


VANISHED_PAUSE_S = 3.0
"""A job is not opened anew this soon after its Workload went away by another hand."""


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
    ) -> None:
        self.mirror = mirror
        self.sync = sync
        self._workers = workers
        self._clock = clock
        self._watchers = watchers
        self._acknowledge = acknowledge
        self._under_way: dict[str, int] = {}
        self._backoff = Backoff()
        self._notices: list[Notice] = []

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
        match event:
            case Observed(table=table, batch=batch):
                if table == "gangs":
                    self._pause_vanished(batch)
                self.mirror.table(table).observe(batch)
            case InstancesListed(instances=instances, at_s=at_s):
                self.mirror.list_instances(instances, at_s)
            case ReservationsListed(reservations=reservations, at_s=at_s):
                self.mirror.list_reservations(reservations, at_s)
            case NamesResolved(resolved=resolved):
                self.mirror.resolved = resolved
            case Priced(catalog=catalog):
                self.mirror.catalog = catalog
            case Noticed(notices=notices):
                self._notices += notices
            case Pushed() | SourceTrouble() | SourceWell() | RevisionLost():
                self.sync.hear(event)
            case Done():
                self._done(event)
            case Failed():
                self._failed(event)
            case Tick():
                self.mirror.expire(self._clock.now())

    def _pause_vanished(self, batch: Batch[Any]) -> None:
        """A Workload that somebody else deleted most likely goes with its job, whose own deletion is yet to be seen."""
        if isinstance(batch, Replace):
            return
        now = self._clock.now()
        for delta in batch.deltas:
            if delta.kind is DeltaKind.DELETED and delta.key in self.mirror.gangs.current:
                self._backoff.pause(gang_subject(delta.object.uid), now + VANISHED_PAUSE_S)

    def turn(self) -> None:
        """One pass: settle the revision, then let every decider speak."""
        if not self.mirror.synced:
            return
        for _ in range(2):  # after what was in force before a restart, what has been pushed since: nothing in between
            for action in self._settled():
                self._act(action)
        self._answer_notices()
        fleet = self.sync.fleet
        if fleet is None:
            return
        for decide in DECIDERS:
            for action in self._decided(decide, fleet):
                self._act(action)
        snapshot = self._snapshot()
        self._tell(lambda watcher: watcher.turned(fleet, snapshot))

    def _settled(self) -> Sequence[Action]:
        """What the revision asks for. One that cannot even be judged changes nothing, and is left for a later turn."""
        try:
            return self.sync.settle(self._snapshot(), self._clock.now())
        except Exception:
            log.exception("sync_failed")
            self._tell(lambda watcher: watcher.stumbled("agent.sync"))
            return ()

    def _decided(self, decide: Decider, fleet: Fleet) -> Sequence[Action]:
        """What one decider asks for. One that fails is reported and skipped: the others go on with their work."""
        try:
            return decide(fleet, self._snapshot())
        except Exception:
            log.exception("decider_failed", decider=decide.__module__)
            self._tell(lambda watcher: watcher.stumbled(decide.__module__))
            return ()

    def _tell(self, say: Callable[[Watcher], None]) -> None:
        """Let every watcher hear. They only look on: one that fails (a full disk) must not stop the work."""
        for watcher in self._watchers:
            try:
                say(watcher)
            except Exception:
                log.exception("watcher_failed", watcher=type(watcher).__name__)

    def _snapshot(self) -> Snapshot:
        now = self._clock.now()
        return self.mirror.snapshot(now, frozenset(self._under_way) | self._backoff.pausing(now))

    def _answer_notices(self) -> None:
        """Write down what notices lead to; the queue forgets them when it is written, and tells again after a crash.

        Advice waits until it is known which pools act on it.
        """
        fleet = self.sync.fleet
        heard = [it for it in self._notices if fleet is not None or it.kind not in ADVICE]
        if not heard:
            return
        snapshot = self._snapshot()
        response = respond(heard, snapshot, fleet.node_pools if fleet is not None else {})
        self.mirror.shortages.update(response.shortages)
        named = {instance_id for notice in heard for instance_id in notice.instance_ids}
        writing = any(
            claim_subject(claim.name) in self._under_way
            for claim in snapshot.claims.values()
            if claim.instance_id in named
        )
        for action in response.actions:
            if not self._under_way.keys() & set(action.subjects):
                self._act(action)
        if not writing and not response.actions:
            self._acknowledge(heard)
            self._notices = [it for it in self._notices if it not in heard]

    def _act(self, action: Action) -> None:
        now = self._clock.now()
        self._tell(lambda watcher: watcher.acting(action, self.mirror, now))
        if isinstance(action, Consider):
            self.mirror.outlook = action.outlook
            return
        for subject in action.subjects:
            self._under_way[subject] = self._under_way.get(subject, 0) + 1
        for table, key, value in beliefs(action, self.mirror):
            table.assume(key, value, now)
        self._workers.submit(action)

    def _done(self, event: Done) -> None:
        self._release(event.action)
        for subject in event.action.subjects:
            self._backoff.succeeded(subject)
        expected = {key: table for table, key, _ in beliefs(event.action, self.mirror)}
        written = {write.key: write for write in event.written}
        for key, table in expected.items():
            if key in written:
                table.confirm(key, written[key].version, written[key].value)
        if isinstance(event.action, TerminateMachines):
            self.mirror.give_back(event.action.instance_ids, self._clock.now())
        elif isinstance(event.action, TagMachine):
            self.mirror.tagged(event.action.instance_id, event.action.tags)
        self._tell(lambda watcher: watcher.ended(event, self._clock.now()))
        if isinstance(event.action, LaunchMachines):
            self._settle_launch(event, event.action)

    def _settle_launch(self, event: Done, action: LaunchMachines) -> None:
        if event.outcome is None:
            raise TypeError("a launch ends with an outcome")
        snapshot = self._snapshot()
        lot = [snapshot.claims[name] for name in action.claims if name in snapshot.claims]
        if not lot:
            return  # nobody answers for them any more: garbage collection gives them back
        settlement = settle(event.outcome, lot, snapshot)
        self.mirror.shortages.update(settlement.shortages)
        if settlement.ask_again:
            for subject in action.subjects:
                self._backoff.failed(subject, snapshot.now_s)
        for following in settlement.actions:
            self._act(following)

    def _failed(self, event: Failed) -> None:
        self._release(event.action)
        now = self._clock.now()
        for subject in event.action.subjects:
            self._backoff.failed(subject, now)
        for table, key, _ in beliefs(event.action, self.mirror):
            table.reject(key)
        self._tell(lambda watcher: watcher.ended(event, now))
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
