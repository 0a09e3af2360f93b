"""Publishing: what git declares and how it stands, as read-only objects in the cluster.

Never read back to decide, with one exception: the FleetSync says after a restart which revision was in force.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple

import msgspec
import structlog

from agent.announce_sync import SyncAnnouncer
from agent.asked import Operated, decode_operated
from agent.config import BOOKS
from agent.failures import Failures
from agent.inbox import RequestHandled
from agent.refused_writes import TOLD_AFTER, RefusedWrite, report_refusal
from agent.reports import pool_reports, queue_reports, sync_report
from agent.sync import Sync, SyncState
from agent.watch import Watcher
from fleet.gangs.idle_gpus import missing_readings
from fleet.mig.records import layout_records, rolled_back_words, with_former_layouts
from fleet.nodeclaims.drift import drifted_claims
from fleet.plan.withdrawals import UncountedGang, outside_quota
from fleet.snapshot import Snapshot, WriteRefusal
from model import labels
from model.fleet import Fleet
from providers.clock import Clock
from providers.kube.errors import KubeError, NotFound
from providers.kube.objects import (
    NodePoolReport,
    QueueReport,
    SyncReport,
    decode_standing,
    decode_sync,
    node_pool_object,
    node_pool_status,
    queue_object,
    queue_status,
    sync_object,
    sync_status,
)
from providers.kube.objects.paths import CONFIG_MAPS, FLEET_SYNCS, NODE_POOLS, QUEUES
from providers.kube.resources import ResourcePath
from providers.kube.transport import KubeTransport

log = structlog.get_logger(__name__)

EVERY_S = 1.0
_UNKNOWN: Any = object()
"""Equal to no report: what stands in the cluster is not known."""


class _ShownMeta(msgspec.Struct):
    name: str = ""
    uid: str = ""
    generation: int = 0


class _ShownObject(msgspec.Struct):
    metadata: _ShownMeta = msgspec.field(default_factory=_ShownMeta)


_any = msgspec.json.Decoder(_ShownObject)
Job = Callable[[], None]


class _Put(NamedTuple):
    """An object as this process has applied it, and what the API answered."""

    body: dict[str, Any]
    answer: bytes

    def stands(self, answer: bytes) -> bool:
        """Whether it is, by a later answer, the same object, and nobody else has written its specification."""
        then, now = _any.decode(self.answer).metadata, _any.decode(answer).metadata
        return (then.uid, then.generation) == (now.uid, now.generation)


class _RefusedReport(NamedTuple):
    refusal: WriteRefusal
    times: int


class ReportWriter:
    """Writes reports to the cluster, each only when it has changed. Runs on its own executor, one write at a time."""

    def __init__(
        self,
        transport: KubeTransport,
        executor: Executor,
        clock: Clock,
        name: str,
        namespace: str,
        leading: Callable[[], bool] = lambda: True,
    ) -> None:
        self._leading = leading
        self._api = transport
        self._executor = executor
        self._clock = clock
        self.name = name
        self._namespace = namespace
        self._shown: dict[tuple[str, str], Any] = {}
        self._ended: SimpleQueue[tuple[tuple[str, str], KubeError | None]] = SimpleQueue()
        """What became of each write; the brain's thread alone changes what is below and `_shown`."""
        self._refused: dict[tuple[str, str], _RefusedReport] = {}
        self._put: dict[tuple[str, str], _Put] = {}
        """What was put last, by plural and name; the executor's alone."""

    def known(self, kind: str, resource: ResourcePath) -> None:
        """Take over what an earlier process has shown, so that what is no longer declared can be withdrawn."""
        for page in self._api.list_pages(resource):
            for raw in page.items or ():
                self._shown.setdefault((kind, _any.decode(raw).metadata.name), _UNKNOWN)

    def _take_in(self) -> None:
        while not self._ended.empty():
            key, error = self._ended.get_nowait()
            refusal = report_refusal(error) if error is not None else None
            if error is not None:
                self._shown[key] = _UNKNOWN
            if refusal is not None:
                self._refused[key] = _RefusedReport(
                    refusal, self._refused[key].times + 1 if key in self._refused else 1
                )
            elif error is None:
                self._refused.pop(key, None)

    def refused(self) -> Sequence[RefusedWrite]:
        """Returns the reports that the API keeps refusing, by name. The FleetSync, which tells of them, is none."""
        told = sorted(key for key, it in self._refused.items() if it.times >= TOLD_AFTER and key[0] != "FleetSync")
        return [RefusedWrite(" ".join(key), self._refused[key].refusal, stops_start=False) for key in told]

    def show(self, kind: str, name: str, report: Any, write: Job) -> None:
        """Write a report unless it is the one already shown."""
        self._take_in()
        if self._shown.get((kind, name)) == report:
            return
        self._shown[kind, name] = report
        self._submit(kind, name, write)

    def withdraw(self, kind: str, resource: ResourcePath, keep: set[str]) -> None:
        """Delete objects of what is no longer declared."""
        self._take_in()
        for shown_kind, name in [key for key in self._shown if key[0] == kind and key[1] not in keep]:
            del self._shown[shown_kind, name]
            self._submit(kind, name, partial(self._delete, resource, name))

    def _submit(self, kind: str, name: str, write: Job) -> None:
        def run() -> None:
            """Write if this process leads, and leave word of how it ended: what failed counts as not shown."""
            if not self._leading():
                return  # what is shown, and the books, are the next leader's
            try:
                write()
            except KubeError as error:
                self._ended.put(((kind, name), error))
                log.warning("publish_failed", kind=kind, name=name, error=str(error))
            else:
                self._ended.put(((kind, name), None))

        self._executor.submit(run)

    def _delete(self, resource: ResourcePath, name: str) -> None:
        try:
            self._api.delete(resource, name)
        except NotFound:
            return

    def put(self, resource: ResourcePath, body: dict[str, Any], status: Callable[[bytes], dict[str, Any]]) -> None:
        """Apply an object and then its status; `status` gets the object as it stands, for its conditions' times.

        An object that still stands as this process has applied it last is not applied again.
        """
        name = body["metadata"]["name"]
        key = resource.plural, name
        last = self._put.pop(key, None)
        if last is not None and last.body == body:
            try:
                answer = self._api.apply(resource, name, status(last.answer), "", "status", force=True)
            except NotFound:
                log.info("report_deleted", resource=resource.plural, name=name)
            else:
                if last.stands(answer):
                    self._put[key] = _Put(body, answer)
                    return
        held = self._api.apply(resource, name, body, force=True)
        self._put[key] = _Put(body, self._api.apply(resource, name, status(held), "", "status", force=True))

    def sync(self, url: str, reference: str, path: str, report: SyncReport) -> None:
        """Writes the FleetSync."""
        body = sync_object(self.name, url, reference, path)
        self.put(FLEET_SYNCS, body, lambda held: sync_status(report, self._clock.now(), *decode_standing(held)))

    def read_sync(self) -> tuple[SyncReport, Operated]:
        """Returns the FleetSync that an earlier process left, and what people ask there."""
        try:
            raw = self._api.read(FLEET_SYNCS, self.name)
        except NotFound:
            return SyncReport(self.name), Operated(suspended=False)
        return decode_sync(raw), decode_operated(raw)

    def queue(self, fleet: Fleet, revision: str, report: QueueReport) -> None:
        """Writes the status of a queue."""
        body = queue_object(fleet.queues[report.name], revision)
        self.put(QUEUES, body, lambda held: queue_status(report, self._clock.now(), *decode_standing(held)))

    def pool(self, fleet: Fleet, revision: str, report: NodePoolReport) -> None:
        """Writes the status of a node pool."""
        body = node_pool_object(fleet.node_pools[report.name], revision)
        self.put(NODE_POOLS, body, lambda held: node_pool_status(report, self._clock.now(), *decode_standing(held)))

    def save_books(self, text: str) -> None:
        """Keep the books in a ConfigMap."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": BOOKS, "namespace": self._namespace, "labels": {labels.BOOKS: "true"}},
            "data": {"books.json": text},
        }

        def write() -> None:
            self._api.apply(CONFIG_MAPS, BOOKS, body, self._namespace, force=True)

        self._submit("ConfigMap", BOOKS, write)

    def read_books(self) -> str:
        """The books as kept; empty where there are none."""
        try:
            raw = self._api.read(CONFIG_MAPS, BOOKS, self._namespace)
        except NotFound:
            return ""
        data: dict[str, str] = msgspec.json.decode(raw).get("data") or {}
        return data.get("books.json", "")


class Publisher(Watcher):
    """Shows queues, pools and the sync about once a second, on behalf of the brain."""

    def __init__(
        self,
        reports: ReportWriter,
        sync: Sync,
        failures: Failures,
        source: tuple[str, str, str],
        clock: Clock,
        announcer: SyncAnnouncer,
    ) -> None:
        self._reports = reports
        self._sync = sync
        self._failures = failures
        self._source = source
        self._clock = clock
        self._announcer = announcer
        self._report = SyncReport(reports.name)
        self._shown_at_s = float("-inf")
        self._shown_state: SyncState | None = None

    def continue_from(self, report: SyncReport) -> None:
        """Continues the history that an earlier process has published."""
        self._report = report
        self._announcer.continue_from(report)

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Show what has changed; news of a revision at once."""
        if snapshot.now_s - self._shown_at_s < EVERY_S:
            if self._sync.state is not self._shown_state:
                self._show_sync_of(fleet, snapshot)
            return
        self._shown_at_s = snapshot.now_s
        try:
            self._show_declared(fleet, snapshot)
        finally:  # whatever cannot be shown of a queue or pool, the sync tells of it
            self._show_sync_of(fleet, snapshot)

    def _show_sync_of(self, fleet: Fleet, snapshot: Snapshot) -> None:
        drifting, unread = len(drifted_claims(fleet, snapshot)), missing_readings(fleet, snapshot)
        self.show_sync(drifting, outside_quota(fleet, snapshot), unread)

    def _show_declared(self, fleet: Fleet, snapshot: Snapshot) -> None:
        revision = self._sync.state.applied
        for queue in queue_reports(fleet, snapshot, self._failures):
            write = partial(self._reports.queue, fleet, revision, queue)
            self._reports.show("Queue", queue.name, (revision, queue), write)
        for pool in pool_reports(fleet, snapshot, self._failures):
            write = partial(self._reports.pool, fleet, revision, pool)
            self._reports.show("NodePool", pool.name, (revision, pool), write)
        self._reports.withdraw("Queue", QUEUES, set(fleet.queues))
        self._reports.withdraw("NodePool", NODE_POOLS, set(fleet.node_pools))

    def show_sync(self, drifting: int = 0, uncounted: Sequence[UncountedGang] = (), unread: str = "") -> None:
        """Show the sync, also while no fleet is in force yet."""
        self._shown_state = self._sync.state
        state, refused = self._sync.state, [*self._failures.writes, *self._reports.refused()]
        report = sync_report(
            self._reports.name, state, drifting, self._report, self._failures, refused, uncounted, unread
        )
        self._report = report
        self._announcer.tell(state, report)
        self._reports.show("FleetSync", self._reports.name, report, lambda: self._reports.sync(*self._source, report))


def restore(reports: ReportWriter, publisher: Publisher, sync: Sync, expected: Callable[[str], str]) -> str:
    """Returns the revision in force before this process, so that a restart never adopts what was refused.

    `expected` says what to believe of what the status hints at. A sync that is suspended is so before any revision.
    """
    report, operated = reports.read_sync()
    publisher.continue_from(report)
    sync.hear(operated)
    sync.state = replace(sync.state, layouts=report.layouts)
    sync.hear(RequestHandled(report.handled_request))
    if revision := expected(report.applied):
        sync.expect(revision, report.day, report.convergence, report.approved, report.rollout)
    return revision


@dataclass(slots=True)
class ConvergenceFollower(Watcher):
    """Lets the sync count, about once a second, what is left of the revision in force, and follow its roll-out."""

    sync: Sync
    _looked_at_s: float = float("-inf")

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """A pass of all deciders is over."""
        self.sync.roll_out(fleet, snapshot)
        follow_layouts(self.sync, fleet, snapshot)
        if snapshot.now_s - self._looked_at_s >= EVERY_S:
            self._looked_at_s = snapshot.now_s
            self.sync.follow(fleet, snapshot)


def follow_layouts(sync: Sync, fleet: Fleet, snapshot: Snapshot) -> None:
    """Remembers which cuts failed; pools that go back to the layout of before do so from now on."""
    before = sync.state.layouts
    after = layout_records(before, fleet, snapshot)
    if after is before:
        return
    for name, record in after.items():
        if record.rolled_back and not (name in before and before[name].rolled_back):
            log.warning("layout_rolled_back", pool=name, why=rolled_back_words(record))
    sync.state, sync.fleet = replace(sync.state, layouts=after), with_former_layouts(fleet, after)
