"""A fleet under a virtual clock: the agent as one controller among the cluster's, and the means to disturb it."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from agent.brain import Brain
from agent.cli.run import install_crds
from agent.clouds import DEFAULT, cloud_provider
from agent.inbox import Pushed
from agent.ledger_settings import LedgerSettings
from agent.simulation.process import LAYOUTS_AT, Commits, Killed, Process, Tempo
from agent.simulation.seat import AgentSeat
from agent.simulation.writes import AgentWrite, Moment, WriteListener
from agent.sources import WATCHED
from agent.watch import Watcher
from fleet.snapshot import Catalog, Claim, Gang, Instance
from providers.clock import VirtualClock
from providers.git.history import Lineage
from providers.ports import Cloud
from providers.sim.apiserver.faults import FaultRules
from providers.sim.clouds import cloud_simulator
from providers.sim.controllers.assembly import SimulationOptions, assemble
from providers.sim.controllers.runtime import Controller
from providers.sim.controllers.upkeep import Upkeep
from providers.sim.direct import ApiFaults, DirectTransport
from providers.sim.kernel import VirtualDriver
from providers.sim.machines import MachineTimings
from providers.sim.shapes import can_be_cut, shapes_of
from providers.sim.store import LATEST, Release, Resource, Store, StoreAlreadyExists, StoreNotFound

Obj = dict[str, Any]
Manifest = Mapping[str, Any]


def at_once() -> float:
    """Actions are carried out when they are asked for."""
    return 0.0


class Simulation:
    """A fleet under a virtual clock: the agent, the cluster, the cloud, and the means to disturb them.

    Faults: `cloud.market.faults` and the market's shortages, `api_faults`, `health` (nodes), `mig_manager.hanging`,
    `commits.trouble`. Without `publishes` nothing is shown in the cluster but workloads and claims, and nothing is kept
    of books and revisions: quicker, and a restart begins anew.
    """

    def __init__(  # noqa: PLR0913 - what a world is made of
        self,
        *,
        catalog: Catalog | None = None,
        options: SimulationOptions | None = None,
        timings: MachineTimings | None = None,
        tempo: Tempo | None = None,
        watchers: Sequence[Watcher] = (),
        publishes: bool = True,
        more: Sequence[Controller] = (),
        agents: int = 1,
        release: Release = LATEST,
        ledger: LedgerSettings | None = None,
    ) -> None:
        simulator = cloud_simulator(DEFAULT)
        sold = catalog or cloud_provider(DEFAULT).catalog(simulator.region)
        self.cluster_name = "default"
        self.tempo = tempo or Tempo()
        self.watchers: Sequence[Watcher] = tuple(watchers)
        self.publishes, self.ledger = publishes, ledger
        self.clock = VirtualClock()
        self.store = Store(self.clock, release=release)
        self.cloud = simulator.in_memory(sold, self.clock, self.cluster_name, timings)
        self.market = self.cloud.market
        self.api_faults, self.api_rules = ApiFaults(), FaultRules()
        self.commits = Commits()
        self.stalled_tables: frozenset[str] = frozenset()
        """Tables of which the agents hear nothing."""
        self.late_writes: Callable[[], float] = at_once
        """How much later than asked for the next write of an agent in the cluster is carried out."""
        self.hindrances = 0
        """How much keeps the agents from working at present."""
        self.writes = 0
        self.comings = 0
        """How often a process of an agent was started or has ended."""
        self._fuse: tuple[int, Moment] | None = None
        self._write_listeners: list[WriteListener] = []
        names = ["agent", *(f"agent-{number}" for number in range(2, agents + 1))]
        self.seats = [AgentSeat(self, name, elects=agents > 1) for name in names]
        self.api: DirectTransport = self.seats[0].api
        self.watched_cloud: Cloud = self.seats[0].watched_cloud
        install_crds(self.api)
        self.world = assemble(
            self.store,
            self.clock,
            machines=self.cloud,
            shape_of=shapes_of(sold),
            feasible=can_be_cut,
            options=self._options(options),
            more=[self.cloud, *self.seats, Upkeep(self.store), *more],
            moves=self._moves,
        )
        self.health = self.world.health
        self.mig_manager = self.world.mig_manager
        self._driver = VirtualDriver(self.world.kernel, self.clock)
        self._namespace(LAYOUTS_AT[0])
        self.restart()

    def _moves(self) -> int:
        return self.cloud.version + self.comings

    def _options(self, given: SimulationOptions | None) -> SimulationOptions:
        chosen = given or SimulationOptions()
        return replace(
            chosen,
            registration=replace(chosen.registration, boot_delay_s=self.cloud.boot_delay_s),
            mig=replace(chosen.mig, config_map=LAYOUTS_AT),
        )

    # -- what people do -----------------------------------------------------------------------------------------------

    def push(
        self,
        files: Mapping[str, str | bytes],
        *,
        signer: str | None = None,
        lineage: Lineage | None = None,
        confirms: frozenset[str] = frozenset(),
    ) -> str:
        """A revision of the fleet repository; its name."""
        revision = f"main@sha1:{len(self.commits.pushed) + 1:040x}"
        found = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
        self.commits.pushed.append(Pushed(revision, found, signer, lineage=lineage, confirms=confirms))
        if self.process is not None:
            self.process.git.due_s = self.now_s  # as the webhook does
        return revision

    def submit(self, manifest: Manifest) -> Obj:
        """Create an object; its namespace is made where it is missing."""
        resource = self._resource(manifest)
        namespace = manifest["metadata"].get("namespace", "") if resource.namespaced else ""
        if namespace:
            self._namespace(namespace)
        return self.store.create(resource, dict(manifest), namespace=namespace)

    def delete(self, manifest: Manifest) -> None:
        """Delete an object with what it owns."""
        resource = self._resource(manifest)
        meta = manifest["metadata"]
        self.store.delete(resource, meta["name"], namespace=meta.get("namespace", ""), propagation="Background")

    def _resource(self, manifest: Manifest) -> Resource:
        return self.store.resource(manifest["kind"], manifest["apiVersion"].rpartition("/")[0])

    def _namespace(self, name: str) -> None:
        try:
            self.store.create(self.store.resource("Namespace"), {"metadata": {"name": name}})
        except StoreAlreadyExists:
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
        process = self._seat.end()
        if process is None:
            return
        for task in process.worker_queue.drain():
            if rng is not None and rng.random() < 0.5:
                task()  # its report goes to an inbox nobody reads any more

    def crash_at(self, write: int, moment: Moment = "before") -> None:
        """The agent dies just before or just after its `write`-th write from the start (API or cloud), see `writes`.

        After the next one that is carried out, where that one is refused.
        """
        self._fuse = (write, moment)

    def restart(self) -> None:
        """Start every agent that does not run (anew)."""
        self._fuse = None
        for seat in self.seats:
            if not seat.runs:
                seat.start()

    @property
    def _seat(self) -> AgentSeat:
        """Where the agent that decides runs; the first where none does."""
        return next((seat for seat in self.seats if seat.process is not None), self.seats[0])

    @property
    def process(self) -> Process | None:
        """The agent that decides."""
        return self._seat.process

    @property
    def alive(self) -> bool:
        """Whether an agent decides."""
        return self.process is not None

    @property
    def able(self) -> bool:
        """Whether an agent runs and nothing keeps it from working, as having started while git does not answer does."""
        if self.hindrances:
            return False
        return any(
            seat.acts and seat.leading() and not (self.commits.trouble and seat.knows_nothing) for seat in self.seats
        )

    def relist(self, tables: frozenset[str]) -> None:
        """The watches of these tables have fallen behind (410): what there is is listed anew."""
        for seat in self.seats:
            if seat.process is not None:
                seat.process.relist(tables)

    def on_write(self, listener: WriteListener) -> None:
        """Call `listener` after each write of an agent."""
        self._write_listeners.append(listener)

    def heard(self, write: AgentWrite) -> None:
        """Tell of a write of an agent."""
        for listener in self._write_listeners:
            listener(write)

    def wrote(self, moment: Moment) -> None:
        """Count a write of an agent, which may end with it."""
        self.writes += moment == "before"
        if self._fuse is not None and moment == self._fuse[1] and self.writes >= self._fuse[0]:
            self._fuse = None
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
        except StoreNotFound:
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
        return list(self.cloud.running())

    def sync(self) -> Obj:
        """Status of the FleetSync; empty before there is one."""
        found = self.object("FleetSync", self.cluster_name)
        return (found or {}).get("status") or {}
