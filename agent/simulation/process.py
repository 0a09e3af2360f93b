"""One life of the agent without threads: what `agent.process` wires with them, wired for a kernel that steps it."""

import heapq
import random
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Protocol, cast

from agent.accounts import Accounts, Bookkeeper, UsedMachines
from agent.announce import Announcer, budget_teller
from agent.announce_sync import SyncAnnouncer
from agent.brain import Brain
from agent.failures import Failures
from agent.inbox import Done, Event, Failed, Observed, Pushed, Tick
from agent.ledger import LedgerKeeper, terms_of
from agent.ledger_settings import LedgerSettings, open_ledger
from agent.mirror import Mirror
from agent.planning import PlanJob
from agent.publish import ConvergenceFollower, Publisher, ReportWriter, restore
from agent.resolutions import ResolutionQuestions, resolutions_listener
from agent.sources import (
    WATCHED,
    catalog_listener,
    git_listener,
    instances_listener,
    notices_listener,
    reservations_listener,
)
from agent.sync import Sync
from agent.timetable import MOST_S, RestPace
from agent.watch import Watcher
from agent.workers import Workers
from fleet.actions import Action, Announce
from fleet.snapshot import Snapshot
from providers.clock import Clock, VirtualClock
from providers.git.errors import RevisionNotFound, SourceError
from providers.git.history import Lineage
from providers.git.source import GitSource, TrustStanding
from providers.kube.actuator import Actuator
from providers.kube.errors import KubeError
from providers.kube.objects.paths import NODE_POOLS, QUEUES
from providers.kube.retry import Retrier, RetryPolicy
from providers.ports import Cloud
from providers.sim.clouds import SimulatedCloud
from providers.sim.direct import DirectTransport, Feed
from providers.sim.store import Store

Latency = Callable[[Action], float]
MOST_TURNS = 1000
"""More turns than this at one instant: the agent undoes and redoes its own work, and in real time would spin."""
MOST_IN_A_ROW = 100
"""Messages one source takes in before the brain has its turn."""
LAYOUTS_AT = ("gpu-operator", "muster-mig-config")
SOURCE = ("sim://fleet", "main", "")


class Spinning(RuntimeError):
    """The agent does not come to rest at one instant; the message names its last actions."""


class Killed(BaseException):
    """The agent's process ends here and now: no handler of the agent may catch it."""


@dataclass(frozen=True, slots=True)
class Tempo:
    """How often the agent looks and how long its workers take, in seconds."""

    tick_s: float = 1.0
    slowest_tick_s: float = MOST_S
    """While nothing is under way ticks come ever later, up to this long, but never past what the deciders read off the
    clock (`agent.timetable.RestPace`); 0 = they keep their pace."""
    listing_s: float = 10.0
    refresh_s: float = 3600.0
    reservations_s: float = 60.0
    resolve_s: float = 300.0
    planning_s: float = 0.0
    """How long it takes to plan a revision."""
    foresees: bool = True
    """Whether a plan looks ahead in the world as it is, or sees none of it: quick, and enough where no rail judges."""
    latency_s: Latency = field(default=lambda _action: 0.0)
    attempts: int = 6
    """Tries of one API call (see `RetryPolicy`); virtual time stands still between them."""
    shuffle: int | None = None
    """Seed of the order in which actions that are due together are carried out; None: as they were asked for."""


class _SteppedExecutor(Executor):
    """An executor whose tasks run when the simulation says so."""

    def __init__(self, clock: VirtualClock, latency_s: Latency, rng: random.Random | None) -> None:
        self._clock = clock
        self._latency_s = latency_s
        self._rng = rng
        self._order = count()
        self._tasks: list[tuple[float, float, int, Callable[[], object]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Put a task in line; its future stays unfinished, as nobody here waits for one."""
        latency_s = self._latency_s(args[0]) if args else 0.0
        luck = self._rng.random() if self._rng else 0.0
        due_s = self._clock.now() + latency_s
        heapq.heappush(self._tasks, (due_s, luck, next(self._order), lambda: fn(*args, **kwargs)))
        return Future()

    def next_at(self) -> float | None:
        """When the first task is due."""
        return self._tasks[0][0] if self._tasks else None

    def run(self, now: float) -> bool:
        """Carry out what is due; whether anything was."""
        ran = False
        while self._tasks and self._tasks[0][0] <= now:
            heapq.heappop(self._tasks)[-1]()
            ran = True
        return ran

    def drain(self) -> list[Callable[[], object]]:
        """Take away everything in line."""
        tasks, self._tasks = [task[-1] for task in self._tasks], []
        return tasks


class Surroundings(Protocol):
    """What a process finds around it; it outlives the process."""

    clock: VirtualClock
    store: Store
    cloud: SimulatedCloud
    commits: "Commits"
    tempo: Tempo
    watchers: Sequence[Watcher]
    publishes: bool
    cluster_name: str
    ledger: LedgerSettings | None

    @property
    def agent_clock(self) -> Clock:
        """What this agent takes for the time of day."""
        ...

    @property
    def api(self) -> DirectTransport:
        """Its connection to the cluster."""
        ...

    @property
    def watched_cloud(self) -> Cloud:
        """The cloud for those who write."""
        ...

    @property
    def stalled_tables(self) -> frozenset[str]:
        """Tables of which nothing is heard."""
        ...

    def late_s(self, action: Action) -> float:
        """How much later than asked for an action is carried out."""
        ...

    def leading(self) -> bool:
        """Whether this process may act."""
        ...


class Commits:
    """The fleet repository without git: revisions in order. `trouble` is raised by every look at it while it is set."""

    def __init__(self) -> None:
        self.pushed: list[Pushed] = []
        self.trouble: SourceError | None = None


class _CommitSource:
    """What one process has seen of the commits; stands in for `GitSource`."""

    next_poll_s = 60.0

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._handed_out = ""

    def poll(self) -> "_Revision | None":
        if self._commits.trouble is not None:
            raise self._commits.trouble
        newest = self._commits.pushed[-1] if self._commits.pushed else None
        if newest is None or newest.revision == self._handed_out:
            return None
        self._handed_out = newest.revision
        return _Revision(newest.revision, newest.files, newest.signer, newest.lineage, newest.confirms)

    def restore(self, hint: str) -> "_Revision":
        found = (
            None if self._commits.trouble else next((it for it in self._commits.pushed if it.revision == hint), None)
        )
        if found is None:
            raise RevisionNotFound(f"there is no revision {hint!r}")
        return _Revision(found.revision, found.files, found.signer, None)

    def standing(self) -> TrustStanding:
        return TrustStanding("", "", "")


class _Revision(NamedTuple):
    revision: str
    files: Mapping[str, bytes]
    verified_signer: str | None
    lineage: Lineage | None
    confirms: frozenset[str] = frozenset()
    author: str = ""


@dataclass(slots=True)
class _SteppedSource:
    """Listens when its time has come; `listen` returns the pause until the next time."""

    listen: Callable[[], float]
    due_s: float

    def step(self, now: float) -> None:
        for _ in range(MOST_IN_A_ROW):
            if self.due_s > now:
                return
            self.due_s = now + self.listen()


class _Watches:
    """What one process watches in the store: a look takes what was written since the last one."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._feeds = {table: Feed[Any](world.store, watched) for table, watched in WATCHED.items()}
        self._watched = Feed.watched_keys(self._feeds.values())
        self._heard_to = -1
        """Version of the store up to which every feed was listened to."""

    def take(self) -> Iterator[Event]:
        """What is new, table by table; nothing of those that are stalled at present."""
        stalled, version = self._world.stalled_tables, self._world.store.resource_version
        if not stalled and version == self._heard_to:
            return
        moved, anew = self._world.store.moved(self._heard_to), self._heard_to < 0
        if anew or not moved.isdisjoint(self._watched):
            for table, feed in self._feeds.items():
                if table not in stalled and (anew or feed.concerns(moved)):
                    yield from (Observed(table, batch) for batch in feed.take())
        self._heard_to = -1 if stalled else version

    def expire(self, tables: Collection[str]) -> None:
        """The watches of these tables are too far behind to go on: the next look lists everything."""
        self._heard_to = -1
        for table in tables:
            self._feeds[table].expire()


class Process:
    """One life of the agent, from start to crash: what `agent.process` wires with threads, wired without."""

    def __init__(self, world: Surroundings) -> None:
        tempo, clock, api = world.tempo, world.clock, world.api
        of_day = self._of_day = api.clock(world.agent_clock)
        rng = None if tempo.shuffle is None else random.Random(tempo.shuffle)
        self.inbox: list[Event] = []
        self.worker_queue = _SteppedExecutor(clock, lambda action: tempo.latency_s(action) + world.late_s(action), rng)
        self.writer = _SteppedExecutor(clock, lambda _work: 0.0, None)
        self._planner = _SteppedExecutor(clock, lambda _job: tempo.planning_s, None)
        actuator = Actuator(api, _retrier(tempo), of_day, instance="sim")
        reports = ReportWriter(api, self.writer, of_day, world.cluster_name, "muster-system", world.leading)
        mirror, sync, failures = Mirror(world.cluster_name), Sync(), Failures()
        self.books = _books(reports, clock, world.ledger, failures)

        def say(announce: Announce) -> None:
            self.writer.submit(_quietly, actuator, announce)

        self.books.tell = budget_teller(say)
        publisher = Publisher(reports, sync, failures, SOURCE, of_day, SyncAnnouncer(say))
        self._publisher = publisher if world.publishes else None
        published = [Announcer(say), ConvergenceFollower(sync), self.books, publisher] if world.publishes else []
        questions = ResolutionQuestions()
        self._acted: deque[Action] = deque(maxlen=20)
        self.brain = Brain(
            mirror,
            sync,
            Workers(actuator, world.watched_cloud, self.worker_queue, self._report, world.leading),
            of_day,
            watchers=[*self._ledger_keepers(world, failures), *published, questions, *world.watchers],
            acknowledge=world.cloud.acknowledge,
            planner=self._plan,
            failures=failures,
        )
        self._world = world
        self._watches = _Watches(world)
        in_force = self._restore(reports, publisher, sync)
        put, now = self.inbox.append, clock.now()
        self.git = _SteppedSource(git_listener(cast("GitSource", _CommitSource(world.commits)), put, in_force), now)
        self._notices = notices_listener(world.cloud, put)
        self._sources = (self.git, *(_SteppedSource(listen, now) for listen in self._listeners(questions)))
        self._foresees = tempo.foresees
        self._pace = RestPace(tempo.tick_s, max(tempo.slowest_tick_s, tempo.tick_s), tempo.tick_s)
        self.turns = 0

    def _ledger_keepers(self, world: Surroundings, failures: Failures) -> list[Watcher]:
        """Who keeps the ledger; nobody where none is kept."""
        if world.ledger is None:
            return []
        opened, used = partial(open_ledger, world.ledger), self.books.accounts.used
        args = world.ledger, world.cluster_name, opened, used, world.cloud, self.writer, failures, world.leading
        return [LedgerKeeper(*args)]

    def _listeners(self, questions: ResolutionQuestions) -> tuple[Callable[[], float], ...]:
        """What the cloud is asked, and the brain's tick, in the order in which they are heard."""
        cloud, tempo, put, of_day = self._world.cloud, self._world.tempo, self.inbox.append, self._of_day
        return (
            instances_listener(cloud, put, of_day, tempo.listing_s),
            reservations_listener(cloud, put, of_day, tempo.reservations_s),
            resolutions_listener(cloud, put, of_day, tempo.resolve_s, questions.asked),
            catalog_listener(cloud, put, tempo.refresh_s),
            self._tick,
        )

    def _restore(self, reports: ReportWriter, publisher: Publisher, sync: Sync) -> str:
        """As `Agent._restore` does."""
        reports.known("Queue", QUEUES)
        reports.known("NodePool", NODE_POOLS)
        return restore(reports, publisher, sync, lambda hint: hint)

    def _plan(self, job: Callable[[], Event]) -> None:
        if not self._foresees and isinstance(job, PlanJob):
            job = replace(job, snapshot=Snapshot(job.snapshot.now_s, catalog=job.snapshot.catalog))
        self._planner.submit(self._planned, job)

    def _planned(self, job: Callable[[], Event]) -> None:
        self.inbox.append(job())

    def _report(self, event: Event) -> None:
        if isinstance(event, Done | Failed):
            self._acted.append(event.action)
        self.inbox.append(event)

    def _tick(self) -> float:
        """The next one comes as in the agent, at the pace of the simulation."""
        self.inbox.append(Tick())
        return self._pace.rest_s(self.brain.due_s - self._of_day.now())

    def step(self, now: float) -> float | None:
        """Folds the events there are, decides once for each batch and acts, until nothing more is due now."""
        for _ in range(MOST_TURNS):
            self._listen(now)
            if self.inbox:
                self._think()
            acted, planned = self.worker_queue.run(now), self._planner.run(now)
            if not (acted or planned or self.inbox):
                break
        else:
            raise Spinning(f"the agent is still busy at {now:.3f} after {MOST_TURNS} turns: {self.doing(5)}")
        self.writer.run(now)
        due = [self.worker_queue.next_at(), self._planner.next_at(), self._world.cloud.next_notice_at()]
        return min(at for at in (*due, *(source.due_s for source in self._sources)) if at is not None)

    def doing(self, most: int) -> list[str]:
        """The last few actions, for whoever has to find out."""
        return [f"{type(action).__name__} {', '.join(action.subjects)}" for action in list(self._acted)[-most:]]

    def relist(self, tables: Collection[str]) -> None:
        """The watches of these tables are too far behind to go on: the next look lists everything."""
        self._watches.expire(tables)

    def _listen(self, now: float) -> None:
        self.inbox += self._watches.take()
        for source in self._sources:
            source.step(now)
        for _ in range(MOST_IN_A_ROW):
            heard = len(self.inbox)
            if self._notices() or len(self.inbox) == heard:
                return

    def _think(self) -> None:
        events = list(self.inbox)
        self.inbox.clear()
        for event in events:
            self.brain.hear(event)
        self.books.inform(self.brain.mirror)
        if self.brain.stirred:
            self.brain.turn()
            self.turns += 1
        if self._publisher is not None and self.brain.sync.fleet is None:
            self._publisher.show_sync()


def _retrier(tempo: Tempo) -> Retrier:
    policy = RetryPolicy(attempts=tempo.attempts)
    return Retrier(stop=threading.Event(), rng=random.Random(0), sleep=lambda _s: None, policy=policy)


def _books(reports: ReportWriter, clock: Clock, ledger: LedgerSettings | None, failures: Failures) -> Bookkeeper:
    accounts = Accounts(used=UsedMachines(terms_of(ledger)))
    accounts.continue_from(reports.read_books())
    return Bookkeeper(accounts, reports.save_books, clock.monotonic, failures)


def _quietly(actuator: Actuator, announce: Announce) -> None:
    try:
        actuator.perform(announce)
    except KubeError:
        return  # an event is never worth a failure
