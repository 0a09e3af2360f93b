"""The process: ears, one brain, hands, wired together; started, stopped, and deposed when another agent leads."""

import os
import queue
import random
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from agent.accounts import Accounts, Bookkeeper
from agent.announce import Announcer
from agent.births import RESOLVE_EVERY_S, Curiosity, births_ear
from agent.brain import Brain
from agent.chronicle import Chronicler
from agent.config import Settings
from agent.ears import (
    RESERVATIONS_EVERY_S,
    Ear,
    catalog_ear,
    git_ear,
    health_ear,
    instances_ear,
    notices_ear,
    reflectors,
    reservations_ear,
    timers,
)
from agent.hands import Hands
from agent.http import HttpFace
from agent.inbox import Event
from agent.journal import Journal
from agent.metrics import Metrics
from agent.mirror import Mirror
from agent.notify import Notifier, post_json
from agent.publish import Board, Publisher
from agent.side import SideChannel
from agent.sync import Sync
from agent.watch import Watcher
from fleet.snapshot import Notice
from providers.clock import Clock, SystemClock
from providers.git.source import GitSource
from providers.kube.actuator import Actuator
from providers.kube.elector import Elector
from providers.kube.lease import KubeLease
from providers.kube.memory import settle_heap
from providers.kube.objects.paths import NODE_POOLS, QUEUES
from providers.kube.retry import Retrier
from providers.kube.transport import KubeTransport
from providers.ports import Cloud, Health, Notices

log = structlog.get_logger(__name__)

HANDS = 16
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
        *,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._cloud = cloud
        self._source = source
        self._notices = notices
        self._health = health
        self._clock = clock or SystemClock()
        self._rng = random.Random()
        self._inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._turned_at_s = self._clock.monotonic()
        self.metrics = Metrics()
        self._elector: Elector | None = None
        self._git: Ear | None = None
        self.lost_lease = False
        self.face = HttpFace(self, settings.http.host, settings.http.port, self._webhook_secret)

    # -- what the HTTP face asks ----------------------------------------------------------------------------------

    def healthy(self) -> str:
        """Why the process should be restarted; a standby that waits for the lease is well."""
        silent_s = self._clock.monotonic() - self._turned_at_s
        leads = self._elector is None or self._elector.leading()
        return f"no turn for {silent_s:.0f} s" if leads and silent_s > STUCK_AFTER_S else ""

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
        """Poll the repository now; False from a standby, which polls nothing."""
        if self._git is None:
            return False
        self._git.poke()
        return True

    def _webhook_secret(self) -> str:
        name = self._settings.http.webhook_secret_env
        return os.environ.get(name, "") if name else ""

    # -- life -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End soon: finish the turn, release the lease, close everything."""
        self._stopping.set()
        self._inbox.put(_WAKE)

    def run(self) -> None:
        """Lead when elected, and act until stopped or deposed."""
        self.face.start()
        try:
            if self._settings.leader_election:
                self._run_elected()
            else:
                self._lead()
        finally:
            self.face.stop()

    def _run_elected(self) -> None:
        """Wait for the lease, lead, and end when it is lost: a deposed process starts anew rather than guess."""
        elected = threading.Event()
        identity = f"{socket.gethostname()}-{os.getpid()}-{self._rng.randrange(1 << 32):08x}"
        lease = KubeLease(self._transport, f"muster-{self._settings.cluster}", self._settings.namespace)

        def lost(reason: str) -> None:
            log.warning("lease_lost", why=reason)
            self.lost_lease = not self._stopping.is_set()
            self.stop()

        self._elector = Elector(
            lease,
            identity,
            lambda _token: elected.set(),
            lost,
            clock=self._clock,
            rng=random.Random(self._rng.random()),
        )
        ended = threading.Event()
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
        settings = self._settings
        self._turned_at_s = self._clock.monotonic()
        hands_pool = ThreadPoolExecutor(HANDS, thread_name_prefix="hand")
        desk = ThreadPoolExecutor(1, thread_name_prefix="desk")
        retrier = Retrier(stop=self._stopping, rng=random.Random(self._rng.random()))
        actuator = Actuator(
            self._transport,
            retrier,
            self._clock,
            instance=socket.gethostname(),
            layouts_at=(settings.mig.namespace, settings.mig.config_map),
        )
        board = Board(self._transport, desk, self._clock, settings.cluster, settings.namespace)
        board.known("Queue", QUEUES)
        board.known("NodePool", NODE_POOLS)
        mirror, sync = Mirror(settings.cluster), Sync()
        hands = Hands(actuator, self._cloud, hands_pool, self._inbox.put, self._leading)
        books = self._books(board)
        source = (settings.source.url, _reference(settings), settings.source.path)
        publisher = Publisher(board, sync, source, self._clock)
        side = SideChannel(self.metrics.news_dropped.inc)
        announcer = Announcer(lambda announce: side.send(actuator.perform, announce))
        notifier = Notifier(settings.cluster, sync, lambda *news: side.send(post_json, *news))
        curiosity = Curiosity()
        watchers: list[Watcher] = [self.metrics, Chronicler(sync), announcer, books, publisher, notifier, curiosity]
        journal = Journal(settings.journal) if settings.journal else None
        watchers += [journal] if journal else []
        books.inform(mirror)

        def acknowledge(told: Sequence[Notice]) -> None:
            desk.submit(self._acknowledge, tuple(told))

        brain = Brain(
            mirror,
            sync,
            hands,
            self._clock,
            watchers=watchers,
            acknowledge=acknowledge,
        )
        self._brain = brain
        ears, watching, scheduler = self._listen(self._restore(board, publisher, sync), curiosity)
        try:
            self._think(brain, books, publisher)
        finally:
            scheduler.shutdown(wait=False)
            self._stopping.set()
            for reflector in watching:
                reflector.stop(1.0)
            for ear in ears:
                ear.poke()
            hands_pool.shutdown(wait=True, cancel_futures=True)
            board.save_books(books.accounts.dump())
            desk.shutdown(wait=True)
            side.close()
            if journal:
                journal.close()

    def _books(self, board: Board) -> Bookkeeper:
        accounts = Accounts()
        try:
            if kept := board.read_books():
                accounts.restore(kept)
        except (ValueError, KeyError) as error:
            log.warning("books_unreadable", why=str(error))
        return Bookkeeper(accounts, board.save_books)

    def _acknowledge(self, notices: Sequence[Notice]) -> None:
        if self._notices is not None:
            self._notices.acknowledge(notices)

    def _restore(self, board: Board, publisher: Publisher, sync: Sync) -> tuple[str, str]:
        """The revision in force before this process and its signer, so that a restart never adopts what was refused."""
        report = board.read_sync()
        publisher.continue_from(report)
        if report.applied:
            sync.expect(report.applied, report.verified_signer)
        return report.applied, report.verified_signer

    def _listen(self, in_force: tuple[str, str], curiosity: Curiosity) -> tuple[list[Ear], list[Any], Any]:
        settings, put = self._settings, self._inbox.put
        self._git = Ear("git", git_ear(self._source, put, in_force), self._stopping)
        listing = instances_ear(self._cloud, put, self._clock, settings.aws.poll_interval_s)
        ears = [
            self._git,
            Ear("instances", listing, self._stopping),
            Ear(
                "reservations",
                reservations_ear(self._cloud, put, self._clock, RESERVATIONS_EVERY_S),
                self._stopping,
            ),
            Ear(
                "births",
                births_ear(self._cloud, put, self._clock, RESOLVE_EVERY_S, curiosity.births),
                self._stopping,
            ),
            Ear("catalog", catalog_ear(self._cloud, put, settings.aws.refresh_interval_s), self._stopping),
        ]
        if self._notices is not None:
            ears.append(Ear("notices", notices_ear(self._notices, put), self._stopping))
        if self._health is not None and settings.aws.instance_health != "Off":
            act = settings.aws.instance_health == "Act"
            listen = health_ear(self._health, put, lambda kind: self.metrics.unhealthy.labels(kind).inc(), act=act)
            ears.append(Ear("health", listen, self._stopping))
        watching = reflectors(self._transport, put, self._clock, self._rng)
        for ear in ears:
            ear.start()
        for reflector in watching:
            reflector.start()
        scheduler = timers(put)
        scheduler.start()
        return ears, watching, scheduler

    def _think(self, brain: Brain, books: Bookkeeper, publisher: Publisher) -> None:
        """Drain the queue, fold, decide; again."""
        settled = False
        while not self._stopping.is_set():
            for event in self._drain():
                self.metrics.events.labels(type(event).__name__).inc()
                brain.hear(event)
            if self._stopping.is_set():
                break
            books.inform(brain.mirror)
            self.metrics.leading.set(1)
            began_s = time.perf_counter()
            brain.turn()
            took_s = time.perf_counter() - began_s
            self.metrics.turn_s.observe(took_s)
            self._turned_at_s = self._clock.monotonic()
            if brain.sync.fleet is None:
                publisher.show_sync()
            if not settled and brain.mirror.synced:
                settled = True
                settle_heap()
            if took_s > LONG_TURN_S:
                self._stopping.wait(min(took_s, LONGEST_REST_S))  # let events gather instead of deciding on each
        self.metrics.leading.set(0)

    def _drain(self) -> list[Event]:
        """Wait for an event, then take all that is there."""
        events = [self._inbox.get()]
        while len(events) < DRAIN_MOST:
            try:
                events.append(self._inbox.get_nowait())
            except queue.Empty:
                break
        return [event for event in events if event is not _WAKE]


class _Wake:
    """Ends a wait of the brain."""


_WAKE: Any = _Wake()


def _reference(settings: Settings) -> str:
    ref = settings.source.ref
    return ref.commit or ref.name or ref.semver or ref.tag or ref.branch
