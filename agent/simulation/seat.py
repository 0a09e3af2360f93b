"""A place where an agent runs: its clock, its connections, its candidacy where there are several, and its deaths."""

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from agent.config import LEASE
from agent.ledger_settings import LedgerSettings
from agent.simulation.clock import AgentClock
from agent.simulation.process import Commits, Killed, Process, Tempo
from agent.simulation.writes import AgentWrite, Moment, RecordedCloud, RecordedTransport
from agent.watch import Watcher
from fleet.actions import Action, LaunchMachines, TagMachine, TerminateMachines
from providers.clock import VirtualClock
from providers.kube.elector import ElectionTiming, Elector, FencingToken
from providers.kube.lease import KubeLease
from providers.sim.apiserver.faults import FaultRules
from providers.sim.clouds import SimulatedCloud
from providers.sim.direct import ApiFaults
from providers.sim.store import Store

NAMESPACE = "muster-system"
TIMING = ElectionTiming(lease_s=30, renew_s=20.0, retry_s=8.0)
"""Twice that of the real agent, and looked at half as often even so: each look is a moment of the simulation."""


class SeatSurroundings(Protocol):
    """The world around all seats."""

    clock: VirtualClock
    store: Store
    cloud: SimulatedCloud
    commits: Commits
    tempo: Tempo
    watchers: Sequence[Watcher]
    publishes: bool
    cluster_name: str
    ledger: LedgerSettings | None
    api_faults: ApiFaults
    api_rules: FaultRules
    stalled_tables: frozenset[str]
    late_writes: Callable[[], float]
    comings: int

    def wrote(self, moment: Moment) -> None:
        """Is called around each write; may end the process there."""

    def heard(self, write: AgentWrite) -> None:
        """Is called after each write."""


class AgentSeat:
    """One controller of the kernel: the agent in it; empty while the agent is dead.

    `elects`: it leads only while it holds the lease, as the real process with leader election does.
    """

    def __init__(self, world: SeatSurroundings, name: str, *, elects: bool) -> None:
        self.name = name
        self.clock, self.store, self.cloud = world.clock, world.store, world.cloud
        self.commits, self.tempo, self.watchers = world.commits, world.tempo, world.watchers
        self.publishes, self.cluster_name, self.ledger = world.publishes, world.cluster_name, world.ledger
        self.agent_clock = AgentClock(world.clock)
        self.api = RecordedTransport(
            world.store,
            world.clock,
            agent=name,
            faults=world.api_faults,
            rules=world.api_rules,
            wrote=world.wrote,
            heard=world.heard,
        )
        self.watched_cloud = RecordedCloud(world.cloud, world.clock, name, world.wrote, world.heard)
        self.process: Process | None = None
        self._world = world
        self._elects = elects
        self._elector: Elector | None = None
        self._elector_due_s = 0.0
        self.lives = 0
        """How often a process was started here."""
        self._turns_of_the_dead = 0
        self._suspended_until_s = 0.0
        self._in_flight: list[Callable[[], object]] = []

    @property
    def stalled_tables(self) -> frozenset[str]:
        """Tables of which nothing is heard."""
        return self._world.stalled_tables

    def late_s(self, action: Action) -> float:
        """How much later than asked for an action is carried out."""
        return 0.0 if isinstance(action, LaunchMachines | TagMachine | TerminateMachines) else self._world.late_writes()

    @property
    def runs(self) -> bool:
        """Whether the process is there, as leader or as candidate."""
        return self.process is not None or self._elector is not None

    @property
    def acts(self) -> bool:
        """Whether an agent here decides, and is not suspended."""
        return self.process is not None and self.clock.now() >= self._suspended_until_s

    @property
    def knows_nothing(self) -> bool:
        """Whether no declarations are in force for the agent here."""
        return self.process is None or self.process.brain.sync.fleet is None

    def leading(self) -> bool:
        """Whether this process may act at this instant."""
        return self._elector is None or self._elector.leading()

    def start(self) -> None:
        """Start the process (anew)."""
        self.lives += 1
        self._world.comings += 1
        self._suspended_until_s = 0.0
        if not self._elects:
            self.process = Process(self)
            return
        lease = KubeLease(self.api, LEASE, NAMESPACE)
        identity = f"{self.name}-{self.lives}"
        self._elector_due_s = self.clock.monotonic()
        self._elector = Elector(
            lease,
            identity,
            self._elected,
            self._lost,
            clock=self.agent_clock,
            rng=random.Random(identity),
            timing=TIMING,
        )

    def _elected(self, _token: FencingToken) -> None:
        self.process = Process(self)

    def _lost(self, _reason: str) -> None:
        self._turns_of_the_dead, self.process = self.turns, None

    @property
    def turns(self) -> int:
        """How often an agent here has decided, in all its lives."""
        return self._turns_of_the_dead + (self.process.turns if self.process is not None else 0)

    def end(self) -> Process | None:
        """The process is no more; what it was."""
        self._world.comings += 1
        process = self.process
        self._turns_of_the_dead, self.process, self._elector = self.turns, None, None
        return process

    def suspend(self, until_s: float, *, in_flight: bool) -> None:
        """Stop the process (SIGSTOP) until then; with `in_flight`, what it had sent off arrives when it wakes."""
        self._suspended_until_s = until_s
        if in_flight and self.process is not None:
            self._in_flight = self.process.worker_queue.drain()

    def step(self, now: float) -> float | None:
        """Let the agent live; it dies here when it is killed."""
        if now < self._suspended_until_s:
            return self._suspended_until_s
        try:
            return self._step(now)
        except Killed:
            self.end()
            return None

    def _step(self, now: float) -> float | None:
        in_flight, self._in_flight = self._in_flight, []
        for task in in_flight:
            task()
        process = self.process
        due = process.step(now) if process is not None else None
        if self._elector is None:
            return due
        if self._elector_due_s <= now:
            self._elector_due_s = self._elector.step()
            if self.process is None and process is not None:
                self._world.comings += 1
                self._elector = None  # a deposed process ends; its supervisor starts another
                return None
            due = now if self.process is not process else due
        return min(self._elector_due_s, due) if due is not None else self._elector_due_s


class Supervisor:
    """Starts what has ended again after a while, as a Deployment does."""

    name = "supervisor"

    def __init__(self, down_s: float = 5.0) -> None:
        self.seats: Sequence[AgentSeat] = ()
        self._down_s = down_s
        self._up_at_s: dict[str, float] = {}

    def step(self, now: float) -> float | None:
        """Start whoever has been down for long enough."""
        for seat in self.seats:
            if seat.runs:
                self._up_at_s.pop(seat.name, None)
            elif now >= self._up_at_s.setdefault(seat.name, now + self._down_s):
                seat.start()
        return min(self._up_at_s.values(), default=None) if any(not seat.runs for seat in self.seats) else None
