"""The real agent in virtual time: brain, mirror, sync, hands and books against a simulated cluster and cloud.

Everything runs in one thread: the agent is one more controller of the simulation's kernel. It can be killed between any
two writes and started again; what was in flight then is lost, or happens without anybody hearing of it.
"""

import heapq
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal

import msgspec

from agent.accounts import Accounts, Bookkeeper
from agent.announce import Announcer
from agent.brain import Brain
from agent.cli.run import install_crds
from agent.ears import WATCHED, catalog_ear, instances_ear, notices_ear
from agent.hands import Hands
from agent.inbox import Done, Event, Failed, Observed, Pushed, Tick
from agent.mirror import Mirror
from agent.publish import Board, Publisher
from agent.sync import Sync
from agent.watch import Watcher
from fleet.actions import Action, Announce
from fleet.snapshot import Catalog, Claim, Gang, Instance, LaunchOutcome, LaunchRequest
from providers.aws.catalog import package_catalog
from providers.clock import VirtualClock
from providers.kube.actuator import Actuator
from providers.kube.errors import KubeError
from providers.kube.retry import Retrier, RetryPolicy
from providers.sim.controllers.assembly import SimulationOptions, assemble
from providers.sim.controllers.runtime import Controller
from providers.sim.direct import ApiFaults, DirectTransport, Feed
from providers.sim.ec2.account import Timings
from providers.sim.ec2.market import Market
from providers.sim.ec2.memory import MemoryCloud
from providers.sim.kernel import Restless, VirtualDriver
from providers.sim.shapes import can_be_cut, shapes_of
from providers.sim.store import AlreadyExists, NotFound, Store

Obj = dict[str, Any]
Manifest = Mapping[str, Any]
Moment = Literal["before", "after"]
Latency = Callable[[Action], float]
MOST_TURNS = 1000
"""More turns than this at one instant: the agent undoes and redoes its own work, and in real time would spin."""
LAYOUTS_AT = ("gpu-operator", "muster-mig-config")
SOURCE = ("sim://fleet", "main", "")


class Killed(BaseException):
    """The agent's process ends here and now: no handler of the agent may catch it."""


@dataclass(frozen=True, slots=True)
class Tempo:
    """How often the agent looks and how long its hands take, in seconds."""

    tick_s: float = 1.0
    listing_s: float = 10.0
    refresh_s: float = 3600.0
    latency_s: Latency = field(default=lambda _action: 0.0)
    attempts: int = 6
    """Tries of one API call (see `RetryPolicy`); virtual time stands still between them."""
    shuffle: int | None = None
    """Seed of the order in which actions that are due together are carried out; None: as they were asked for."""


class _Queue(Executor):
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


class _WatchedCloud(MemoryCloud):
    """The cloud with a bell before and after each call that spends or returns money."""

    wrote: Callable[[Moment], None] = staticmethod(lambda _moment: None)

    def launch(self, request: LaunchRequest) -> LaunchOutcome:
        """Buy machines."""
        self.wrote("before")
        outcome = super().launch(request)
        self.wrote("after")
        return outcome

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Give machines back."""
        self.wrote("before")
        super().terminate(instance_ids)
        self.wrote("after")


class _Process:
    """One life of the agent, from start to crash: what `agent.process` wires with threads, wired without."""

    def __init__(self, world: "Simulation") -> None:
        tempo, clock, api = world.tempo, world.clock, world.api
        rng = None if tempo.shuffle is None else random.Random(tempo.shuffle)
        self.inbox: list[Event] = []
        self.hands_queue = _Queue(clock, tempo.latency_s, rng)
        self.desk = _Queue(clock, lambda _work: 0.0, None)
        retrier = Retrier(
            stop=threading.Event(),
            rng=random.Random(0),
            sleep=lambda _s: None,
            policy=RetryPolicy(attempts=tempo.attempts),
        )
        actuator = Actuator(api, retrier, clock, instance="sim", layouts_at=LAYOUTS_AT)
        board = Board(api, self.desk, clock, world.cluster_name, "muster-system")
        mirror, sync = Mirror(world.cluster_name), Sync()
        books = _books(board)
        self.books = books
        publisher = Publisher(board, sync, SOURCE, clock)

        def say(announce: Announce) -> None:
            self.desk.submit(_quietly, actuator, announce)

        watchers = [Announcer(say), books, publisher, *world.watchers]
        self._acted: deque[Action] = deque(maxlen=20)
        hands = Hands(actuator, world.cloud, self.hands_queue, self._report)
        self.brain = Brain(
            mirror,
            sync,
            hands,
            clock,
            watchers=watchers if world.publishes else world.watchers,
            acknowledge=world.cloud.acknowledge,
        )
        self._publisher = publisher if world.publishes else None
        self._feeds = {table: Feed[Any](world.store, watched) for table, watched in WATCHED.items()}
        put = self.inbox.append
        self._notices = notices_ear(world.cloud, put)
        self._ears = [
            [instances_ear(world.cloud, put, clock, tempo.listing_s), clock.now()],
            [catalog_ear(world.cloud, put, tempo.refresh_s), clock.now()],
            [self._tick, clock.now()],
        ]
        self._tick_s = tempo.tick_s
        self.turns = 0
        self._restore(board, publisher, world.pushed)

    def _restore(self, board: Board, publisher: Publisher, pushed: Sequence[Pushed]) -> None:
        """As `Agent._restore` does: the revision in force first, then the newest."""
        report = board.read_sync()
        publisher.continue_from(report)
        for known in pushed:
            if known.revision == report.applied:
                self.inbox.append(replace(known, restored=True))
                break
        if pushed and pushed[-1].revision != report.applied:
            self.inbox.append(pushed[-1])

    def _report(self, event: Event) -> None:
        if isinstance(event, Done | Failed):
            self._acted.append(event.action)
        self.inbox.append(event)

    def _tick(self) -> float:
        self.inbox.append(Tick())
        return self._tick_s

    def step(self, now: float) -> float | None:
        """Hear what there is to hear, think once for each batch, act; until nothing more is due now."""
        for _ in range(MOST_TURNS):
            self._listen(now)
            if self.inbox:
                self._think()
            if not (self.hands_queue.run(now) or self.inbox):
                break
        else:
            raise Restless(f"the agent is still busy at {now:.3f} after {MOST_TURNS} turns: {self.doing(5)}")
        self.desk.run(now)
        due = [self.hands_queue.next_at(), *(at for _, at in self._ears)]
        return min(at for at in due if at is not None)

    def doing(self, most: int) -> list[str]:
        """The last few actions, for whoever has to find out."""
        return [f"{type(action).__name__} {', '.join(action.subjects)}" for action in list(self._acted)[-most:]]

    def _listen(self, now: float) -> None:
        for table, feed in self._feeds.items():
            for batch in feed.take():
                self.inbox.append(Observed(table, batch))
        for ear in self._ears:
            while ear[1] <= now:
                ear[1] = now + ear[0]()
                if ear[1] == now:
                    continue
        heard = len(self.inbox)
        while not self._notices() and len(self.inbox) > heard:
            heard = len(self.inbox)

    def _think(self) -> None:
        events = list(self.inbox)
        self.inbox.clear()
        for event in events:
            self.brain.hear(event)
        self.brain.mirror.spent_usd = self.books.accounts.spent_usd
        self.brain.turn()
        self.turns += 1
        if self._publisher is not None and self.brain.sync.fleet is None:
            self._publisher.show_sync()


class _AgentController:
    """The agent's place in the kernel; empty while the agent is dead."""

    name = "agent"

    def __init__(self, world: "Simulation") -> None:
        self._world = world

    def step(self, now: float) -> float | None:
        """Let the agent live; it dies here when it is killed."""
        process = self._world.process
        if process is None:
            return None
        try:
            return process.step(now)
        except Killed:
            self._world.process = None
            return None


class Simulation:
    """A fleet under a virtual clock: the agent, the cluster, the cloud, and the means to disturb them.

    Faults: `cloud.market.faults` and the market's shortages, `api_faults`, `health` (nodes), `mig_manager.hanging`.
    """

    def __init__(
        self,
        *,
        catalog: Catalog | None = None,
        market: Market | None = None,
        options: SimulationOptions | None = None,
        timings: Timings | None = None,
        tempo: Tempo | None = None,
        watchers: Sequence[Watcher] = (),
        publishes: bool = True,
        more: Sequence[Controller] = (),
        cluster: str = "default",
        start_s: float = 1_800_000_000.0,
    ) -> None:
        sold = catalog or package_catalog("us-east-1").catalog
        self.cluster_name = cluster
        self.tempo = tempo or Tempo()
        self.watchers = list(watchers)
        self.publishes = publishes
        self.clock = VirtualClock(start_s)
        self.store = Store(self.clock)
        self.market = market or Market.from_catalog(sold)
        self.cloud = _WatchedCloud(self.market, sold, self.clock, cluster=cluster, timings=timings)
        self.api_faults = ApiFaults()
        self.api = DirectTransport(self.store, self.clock, faults=self.api_faults, wrote=self._wrote)
        self.process: _Process | None = None
        self.pushed: list[Pushed] = []
        self.writes = 0
        self._fuse: tuple[int, Moment] | None = None
        install_crds(self.api)
        self.world = assemble(
            self.store,
            self.clock,
            machines=self.cloud,
            shape_of=shapes_of(sold),
            feasible=can_be_cut,
            options=self._options(options),
            more=[self.cloud, _AgentController(self), *more],
        )
        self.health = self.world.health
        self.mig_manager = self.world.mig_manager
        self._driver = VirtualDriver(self.world.kernel, self.clock)
        self._namespace(LAYOUTS_AT[0])
        self.cloud.wrote = self._wrote
        self.restart()

    def _options(self, given: SimulationOptions | None) -> SimulationOptions:
        chosen = given or SimulationOptions()
        return replace(
            chosen,
            registration=replace(chosen.registration, boot_delay_s=self.cloud.boot_delay_s),
            mig=replace(chosen.mig, config_map=LAYOUTS_AT),
        )

    # -- what people do -----------------------------------------------------------------------------------------------

    def push(self, files: Mapping[str, str | bytes], *, signer: str | None = None, forced: bool = False) -> str:
        """A revision of the fleet repository; its name."""
        revision = f"main@sha1:{len(self.pushed) + 1:040x}"
        found = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
        pushed = Pushed(revision, found, signer, forced=forced)
        self.pushed.append(pushed)
        if self.process is not None:
            self.process.inbox.append(pushed)
        return revision

    def submit(self, manifest: Manifest) -> Obj:
        """Create an object; its namespace is made where it is missing."""
        resource = self.store.resource(manifest["kind"])
        namespace = manifest["metadata"].get("namespace", "") if resource.namespaced else ""
        if namespace:
            self._namespace(namespace)
        return self.store.create(resource, dict(manifest), namespace=namespace)

    def delete(self, manifest: Manifest) -> None:
        """Delete an object with what it owns."""
        resource = self.store.resource(manifest["kind"])
        meta = manifest["metadata"]
        self.store.delete(resource, meta["name"], namespace=meta.get("namespace", ""), propagation="Background")

    def _namespace(self, name: str) -> None:
        try:
            self.store.create(self.store.resource("Namespace"), {"metadata": {"name": name}})
        except AlreadyExists:
            return

    # -- time ---------------------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """The virtual instant."""
        return self.clock.now()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._driver.advance_by(seconds)

    def advance_until(self, holds: Callable[[], bool], within_s: float) -> bool:
        """Let time pass until `holds()`; False when it does not within `within_s`."""
        return self._driver.advance_until(holds, within_s=within_s)

    # -- death and resurrection ---------------------------------------------------------------------------------------

    def crash(self, rng: random.Random | None = None) -> None:
        """The agent dies. With `rng`, each action in flight has happened all the same or not; without, none has."""
        process, self.process = self.process, None
        if process is None:
            return
        for task in process.hands_queue.drain():
            if rng is not None and rng.random() < 0.5:
                task()  # its report goes to an inbox nobody reads any more

    def crash_at(self, write: int, moment: Moment = "before") -> None:
        """The agent dies just before or just after its `write`-th write from the start (API or cloud), see `writes`."""
        self._fuse = (write, moment)

    def restart(self) -> None:
        """Start the agent (anew)."""
        self._fuse = None
        self.process = _Process(self)

    @property
    def alive(self) -> bool:
        """Whether the agent runs."""
        return self.process is not None

    def _wrote(self, moment: Moment) -> None:
        self.writes += moment == "before"
        if self._fuse == (self.writes, moment):
            raise Killed

    # -- observations -------------------------------------------------------------------------------------------------

    @property
    def brain(self) -> Brain:
        """The living agent's brain."""
        if self.process is None:
            raise LookupError("the agent is dead")
        return self.process.brain

    def objects(self, kind: str, namespace: str = "") -> list[Obj]:
        """All objects of a kind."""
        return self.store.list(self.store.resource(kind), namespace)

    def object(self, kind: str, name: str, namespace: str = "") -> Obj | None:
        """One object; None where there is none."""
        try:
            return self.store.get(self.store.resource(kind), name, namespace)
        except NotFound:
            return None

    def gangs(self) -> dict[str, Gang]:
        """Gangs as the cluster shows them, by job name."""
        decode = WATCHED["gangs"].decode
        found = [decode(msgspec.Raw(msgspec.json.encode(raw))) for raw in self.objects("Workload")]
        return {gang.job.name: gang for gang in found}

    def gang(self, job: str) -> Gang | None:
        """The gang of a job; None before it is opened."""
        return self.gangs().get(job)

    def running(self, job: str) -> bool:
        """Whether all pods of the job's gang are ready."""
        gang = self.gang(job)
        return gang is not None and gang.state == "Admitted" and gang.pods_ready

    def claims(self) -> dict[str, Claim]:
        """Claims as the cluster shows them."""
        decode = WATCHED["claims"].decode
        found = [decode(msgspec.Raw(msgspec.json.encode(raw))) for raw in self.objects("NodeClaim")]
        return {claim.name: claim for claim in found}

    def machines(self) -> list[Instance]:
        """Machines that bill now, by id."""
        alive = (vm.as_instance() for vm in self.cloud.account.vms() if vm.alive)
        return sorted(alive, key=lambda instance: instance.id)

    def sync(self) -> Obj:
        """Status of the FleetSync; empty before there is one."""
        found = self.object("FleetSync", self.cluster_name)
        return (found or {}).get("status") or {}


def _books(board: Board) -> Bookkeeper:
    accounts = Accounts()
    if kept := board.read_books():
        accounts.restore(kept)
    return Bookkeeper(accounts, board.save_books)


def _quietly(actuator: Actuator, announce: Announce) -> None:
    try:
        actuator.perform(announce)
    except KubeError:
        return  # an event is never worth a failure
