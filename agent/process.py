"""The process: sources, one brain, workers, wired together; started, stopped, and deposed when another agent leads."""

import os
import queue
import random
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import structlog

from agent.accounts import Accounts, Bookkeeper, UsedMachines
from agent.announce import Announcer, budget_teller
from agent.announce_sync import SyncAnnouncer
from agent.async_sink import AsyncSink
from agent.brain import Brain
from agent.config import LEASE, Settings
from agent.connection_limits import ConnectionLimits
from agent.explanations import keeper_of
from agent.failures import Failures
from agent.http import Webhook, status_listener, webhook_listener
from agent.inbox import Event, Tick
from agent.journal import DecisionLog, Journal, latest_lines
from agent.ledger import ledger_keepers, terms_of
from agent.listener import HttpListener
from agent.listening import ListenedTo, TermListeners
from agent.metrics import Metrics
from agent.mirror import Mirror
from agent.notify import Notifier
from agent.outbox import Outbox
from agent.planning import PlannerThread
from agent.publish import ConvergenceFollower, Publisher, ReportWriter, restore
from agent.reconcile_requests import leave_request
from agent.record import Record
from agent.resolutions import ResolutionQuestions
from agent.review.opening import AgentSide, ReviewPorts, reviewer_of
from agent.review.reviewer import Reviewer
from agent.review.world import LatestWorld
from agent.sources import SourceThread
from agent.sync import Sync
from agent.timetable import Alarm
from agent.watch import Watcher
from agent.web.seen import Explain, PageWatcher
from agent.web.server import page_answers
from agent.workers import Workers
from fleet.actions import Announce
from fleet.snapshot import Notice
from model.fleet import Fleet
from providers.clock import Clock, SystemClock
from providers.git.source import GitSource
from providers.kube.actuator import Actuator, GpuOperatorMaps
from providers.kube.elector import Elector
from providers.kube.lease import KubeLease
from providers.kube.memory import collection_paused, settle_heap
from providers.kube.objects.paths import NODE_POOLS, QUEUES
from providers.kube.retry import Retrier
from providers.kube.transport import KubeTransport
from providers.ports import Cloud, Health, Notices

log = structlog.get_logger(__name__)

WORKERS = 16
STUCK_AFTER_S = 60.0
"""The brain is unwell when it has not finished a turn for this long."""
DRAIN_MOST = 10_000
LONG_TURN_S = 0.05
LONGEST_REST_S = 1.0


class Agent:
    """One running agent. `run` blocks until `stop` is called (by a signal) or leadership is lost."""

    def __init__(
        self,
        settings: Settings,
        transport: KubeTransport,
        cloud: Cloud,
        source: GitSource,
        notices: Notices | None = None,
        health: Health | None = None,
        review: ReviewPorts | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._cloud = cloud
        self._source = source
        self._notices = notices
        self._health = health
        self._review = review
        self._time_of_day = clock or SystemClock()
        self._clock = transport.clock(self._time_of_day)
        self._rng = random.Random()
        self._inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._turned_at_s = self._clock.monotonic()
        self.metrics = Metrics()
        self.metrics.clock_offset.set_function(lambda: self._clock.now() - self._time_of_day.now())
        transport.tell(self.metrics.asked_api)
        self._elector: Elector | None = None
        self._on_push: tuple[SourceThread, ...] = ()
        """Those that look again when somebody has pushed; none in a standby."""
        self.lost_lease = False
        self._seen = PageWatcher()
        self.status_pages = self._status_pages()
        self.webhook = self._webhook() if settings.webhook.listens else None

    def _status_pages(self) -> HttpListener:
        said = self._settings.http
        limits = ConnectionLimits(total=said.max_connections, per_address=said.max_connections // 4)
        page = page_answers(self._settings.web, self._seen, self._transport, self._clock.monotonic)
        heard = self.metrics.refused
        return status_listener(self, said.host, said.port, limits=limits, refused=heard, page=page, tls=said.tls())

    def _webhook(self) -> HttpListener:
        said = self._settings.webhook
        limits = ConnectionLimits(
            said.max_connections,
            said.max_connections_per_address,
            said.requests_per_minute,
            said.header_timeout_s,
            said.request_timeout_s,
        )
        hook = Webhook(said.secret, self.pushed, self.metrics.delivered, body_most=said.max_body_bytes)
        return webhook_listener(hook, said.host, said.port, limits=limits, refused=self.metrics.refused, tls=said.tls())

    # -- what the HTTP servers ask ----------------------------------------------------------------------------------

    def healthy(self) -> str:
        """Why the process should be restarted; a standby that waits for the lease is well."""
        silent_s = self._clock.monotonic() - self._turned_at_s
        leads = self._elector is None or self._elector.leading()
        return f"nothing has been decided for {silent_s:.0f} s" if leads and silent_s > STUCK_AFTER_S else ""

    def ready(self) -> str:
        """Why it cannot do its work yet; a standby is ready to take over."""
        if self._elector is not None and not self._elector.leading():
            return ""
        brain = getattr(self, "_brain", None)
        if brain is None or not brain.mirror.synced:
            return "cluster and cloud are still being read"
        return "" if brain.sync.fleet is not None else f"no fleet in force: {brain.sync.state.message}"

    def exposition(self) -> bytes:
        """Metrics as Prometheus text."""
        return self.metrics.exposition()

    def pushed(self) -> bool:
        """Poll the repository now; a standby, which polls nothing, leaves a request for the leader.

        False when that could not be left. Waits for the API server, so it is not for the thread of a server.
        """
        if not self._on_push:
            return leave_request(self._transport, self._settings.cluster, self._clock)
        self._look_again()
        return True

    def _look_again(self) -> None:
        for thread in self._on_push:
            thread.poke()

    # -- life -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End soon: finish the turn, release the lease, close everything."""
        self._stopping.set()
        self._inbox.put(_WAKE)

    def run(self) -> None:
        """Lead when elected, and act until stopped or deposed."""
        self.status_pages.start()
        try:
            if self.webhook is not None:
                self.webhook.start()
            if self._settings.leader_election:
                self._run_elected()
            else:
                self._lead()
        finally:
            for listener in (self.webhook, self.status_pages):
                if listener is not None:
                    listener.stop()
            self._source.close()
            if self._review is not None:
                self._review.commits.close()

    def _run_elected(self) -> None:
        """Wait for the lease, lead, and end when it is lost: a deposed process starts anew rather than guess."""
        elected = threading.Event()
        identity = f"{socket.gethostname()}-{os.getpid()}-{self._rng.randrange(1 << 32):08x}"
        lease = KubeLease(self._transport, LEASE, self._settings.namespace)
        ended = threading.Event()

        def lost(reason: str) -> None:
            log.warning("lease_lost", why=reason)
            self.lost_lease = not self._stopping.is_set()
            ended.set()  # a process has one term: elected again while it shuts down, old actions would go on
            self.stop()

        self._elector = Elector(
            lease,
            identity,
            lambda _token: elected.set(),
            lost,
            clock=self._time_of_day,
            rng=random.Random(self._rng.random()),
        )
        thread = threading.Thread(target=self._elector.run, args=(ended,), name="elector", daemon=True)
        thread.start()
        try:
            while not elected.wait(0.2):
                if self._stopping.is_set():
                    return
            self._lead()
        finally:
            ended.set()
            thread.join(5.0)

    def _leading(self) -> bool:
        return self._elector is None or self._elector.leading()

    def _lead(self) -> None:
        """Read the cluster and the cloud, decide and act, until stopped or deposed."""
        self._turned_at_s = self._clock.monotonic()
        term = self._term()
        mirror, failures, said = Mirror(self._settings.cluster), Failures(), self._settings
        sync = Sync(self._adopted, self._review is not None, said.least_approvals, said.cluster)
        books, questions = self._books(term.reports, failures), ResolutionQuestions()
        books.inform(mirror)
        source = (said.source.url, said.source.ref.shown, said.source.path)
        told = said.notifications
        put, troubles = term.outbox.put, term.outbox.troubles
        where = os.environ, told.address_folder, told.commit_link
        notifier = Notifier(said.cluster, sync, put, *where, troubles, failures)

        def noted(event: Announce) -> None:
            for it in (*term.files, self._seen):
                it.told(event, self._clock.now())

        announcer = SyncAnnouncer(term.say, notifier.hear, noted)
        books.tell = budget_teller(term.say, notifier.hear_budget)
        publisher = Publisher(term.reports, sync, failures, source, self._clock, announcer)
        latest = LatestWorld(lambda: sync.state, self._look_again)
        say = self._seen.hearing(term.say, self._clock.now)
        telling = [self.metrics, DecisionLog(sync), Announcer(say), ConvergenceFollower(sync), notifier]
        used = books.accounts.used
        self.metrics.lead(lambda: sync.state, used.terms)
        heard = self._clock.monotonic, self._leading, self.metrics.not_explained
        why = keeper_of(said, used.terms, self._transport, *heard)
        earlier = latest_lines(said.journal) if said.journal else ()
        self._seen.lead(lambda: sync.state, earlier, used.terms, why.explain, why.months)
        keepers = ledger_keepers(said, used, self._cloud, failures, self._leading)
        watchers = [*telling, *term.files, books, *keepers, publisher, questions, latest, self._seen, why]
        brain = self._brain = self._new_brain(term, mirror, sync, failures, watchers)
        in_force = restore(term.reports, publisher, sync, self._source.expected)
        reviewer = self._reviewer(latest, sync, why.explain)
        listening = self._listening(in_force, questions, sync.state.handled_request, reviewer)
        why.start()
        try:
            self._think(brain, books, publisher, listening.alarm)
        finally:
            self._stopping.set()
            why.close()
            listening.stop()
            if reviewer is not None:
                reviewer.close()
            term.end(books.accounts)
            for keeper in keepers:
                keeper.close()

    def _adopted(self, revision: str, fleet: Fleet) -> None:
        """Tell the source what is in force, and how often that wants it looked at."""
        self._source.adopted(revision)
        asked_s = fleet.cluster.spec.interval if fleet.cluster else None
        if self._source.look_every(asked_s or self._settings.source.poll_interval_s):
            self._look_again()  # who waits for a long interval to end would not hear of a shorter one

    def _term(self) -> "_Term":
        settings = self._settings
        writer = ThreadPoolExecutor(1, thread_name_prefix="writer")
        actuator = Actuator(
            self._transport,
            Retrier(stop=self._stopping, rng=random.Random(self._rng.random())),
            self._clock,
            instance=socket.gethostname(),
            gpu_operator=GpuOperatorMaps(
                settings.mig.namespace, settings.mig.config_map, settings.mig.device_plugin_config_map
            ),
        )
        reports = ReportWriter(
            self._transport, writer, self._clock, settings.cluster, settings.namespace, self._leading
        )
        reports.known("Queue", QUEUES)
        reports.known("NodePool", NODE_POOLS)
        workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="worker")
        journal = (Journal(settings.journal),) if settings.journal else ()
        record = (Record(settings.record, settings.record_mib * 2**20),) if settings.record else ()
        sink = AsyncSink(self.metrics.news_dropped.inc)
        outbox = Outbox(lambda *what: self.metrics.notifications.labels(*what).inc(), self._clock)
        outbox.start()
        return _Term(workers, writer, actuator, reports, sink, outbox, (*journal, *record))

    def _new_brain(
        self, term: "_Term", mirror: Mirror, sync: Sync, failures: Failures, watchers: Sequence[Watcher]
    ) -> Brain:
        def acknowledge(told: Sequence[Notice]) -> None:
            term.writer.submit(self._acknowledge, tuple(told))

        return Brain(
            mirror,
            sync,
            Workers(term.actuator, self._cloud, term.workers, self._inbox.put, self._leading),
            self._clock,
            watchers=watchers,
            acknowledge=acknowledge,
            planner=PlannerThread(self._inbox.put).submit,
            failures=failures,
        )

    def _books(self, reports: ReportWriter, failures: Failures) -> Bookkeeper:
        accounts = Accounts(used=UsedMachines(terms_of(self._settings.ledger)))
        accounts.continue_from(reports.read_books())
        return Bookkeeper(accounts, reports.save_books, self._clock.monotonic, failures)

    def _acknowledge(self, notices: Sequence[Notice]) -> None:
        if self._notices is not None:
            self._notices.acknowledge(notices)

    def _reviewer(self, latest: LatestWorld, sync: Sync, explain: Explain) -> Reviewer | None:
        count, put, look = self.metrics.reviewed, self._inbox.put, self._look_again
        side = AgentSide(lambda: latest.now, lambda: sync.state, self._clock, count, put, self._leading, look, explain)
        return reviewer_of(self._settings, self._review, side) if self._review is not None else None

    def _listening(
        self, in_force: str, questions: ResolutionQuestions, handled: str, reviewer: Reviewer | None
    ) -> TermListeners:
        world = ListenedTo(self._source, self._transport, self._cloud, self._notices, self._health, self._clock)
        hearing = TermListeners(self._settings, world, self._inbox.put, self.metrics, self._stopping, self._look_again)
        self._on_push = hearing.listen(
            in_force, questions.asked, handled, reviewer.look if reviewer else None, self._rng
        )
        hearing.start()
        return hearing

    def _think(self, brain: Brain, books: Bookkeeper, publisher: Publisher, alarm: Alarm) -> None:
        """Takes events from the inbox, folds them into the mirror and decides, until stopped.

        `alarm` is set after each turn to when the next is due, though nothing is heard until then.
        """
        settled = False
        while not self._stopping.is_set():
            events = self._drain()
            for event in events:
                self.metrics.events.labels(type(event).__name__).inc()
                brain.hear(event)
            if self._stopping.is_set():
                break
            books.inform(brain.mirror)
            self.metrics.leading.set(1)
            took_s = self._turned(brain) if brain.stirred else 0.0
            self._turned_at_s = self._clock.monotonic()
            if (ticked := any(isinstance(event, Tick) for event in events)) or took_s:
                alarm.rest(brain.due_s - self._clock.now(), ticked=ticked)
            if brain.sync.fleet is None:
                publisher.show_sync()
            if not settled and brain.mirror.synced:
                settled = True
                settle_heap()
            if took_s > LONG_TURN_S:
                self._stopping.wait(min(took_s, LONGEST_REST_S))  # let events gather instead of deciding on each
        self.metrics.leading.set(0)

    def _turned(self, brain: Brain) -> float:
        """Decides once; how long it took, in seconds."""
        began_s = time.perf_counter()
        with collection_paused():
            brain.turn()
        took_s = time.perf_counter() - began_s
        self.metrics.turn_s.observe(took_s)
        return took_s

    def _drain(self) -> list[Event]:
        """Wait for an event, then take all that is there."""
        events = [self._inbox.get()]
        while len(events) < DRAIN_MOST:
            try:
                events.append(self._inbox.get_nowait())
            except queue.Empty:
                break
        return [event for event in events if event is not _WAKE]


@dataclass(frozen=True, slots=True)
class _Term:
    """What acts and writes while the process leads."""

    workers: ThreadPoolExecutor
    writer: ThreadPoolExecutor
    actuator: Actuator
    reports: ReportWriter
    sink: AsyncSink
    outbox: Outbox
    files: tuple[Journal | Record, ...]

    def say(self, announce: Announce) -> None:
        """Write an event when there is time."""
        self.sink.send(self.actuator.perform, announce)

    def end(self, accounts: Accounts) -> None:
        """Let what is under way come to its end, begin nothing more, and keep the books."""
        self.workers.shutdown(wait=True, cancel_futures=True)
        self.reports.save_books(accounts.dump())
        self.writer.shutdown(wait=True)
        self.sink.close()
        self.outbox.close()
        for file in self.files:
            file.close()


_WAKE: Any = object()  # ends a wait of the brain
