"""The checker: keeps the facts, tells the laws, and looks every few seconds."""

from collections.abc import Callable, Sequence
from typing import Final

from agent.simulation.laws.books import BooksAgree
from agent.simulation.laws.facts import Facts, Law
from agent.simulation.laws.gangs import GangWhole, PodSeats
from agent.simulation.laws.jobs import NoFailureCharged, StopsNothingForGood
from agent.simulation.laws.machines import NothingIdle, NothingUnclaimed, OneMachineAClaim, OneReplacement, PoolLimits
from agent.simulation.laws.quota import TeamQuota
from agent.simulation.laws.repeated import NothingTwice
from agent.simulation.laws.rest import GuaranteedRuns, StandsStill
from agent.simulation.world import Simulation
from agent.simulation.writes import AgentWrite
from providers.sim.store import StoreEvent

LOOK_S: Final = 15.0
LAWS: Final[Sequence[Callable[[Facts], Law]]] = (
    GangWhole,
    PodSeats,
    PoolLimits,
    OneMachineAClaim,
    NothingUnclaimed,
    NothingIdle,
    OneReplacement,
    TeamQuota,
    StopsNothingForGood,
    NoFailureCharged,
    NothingTwice,
    BooksAgree,
    GuaranteedRuns,
    StandsStill,
)


class Checker:
    """A controller of the simulation that changes nothing."""

    name = "checker"

    def __init__(self) -> None:
        self._facts: Facts | None = None
        self._laws: Sequence[Law] = ()
        self._hearing_changes: Sequence[Callable[[StoreEvent], None]] = ()
        self._hearing_writes: Sequence[Callable[[AgentWrite], None]] = ()
        self._next_s = 0.0
        self._looked_s = 0.0

    def watch(self, sim: Simulation) -> Facts:
        """Begin with a simulation; its facts."""
        self._facts = facts = Facts(sim)
        self._laws = laws = [law(facts) for law in LAWS]
        self._hearing_changes = [law.changed for law in laws if type(law).changed is not Law.changed]
        self._hearing_writes = [law.acted for law in laws if type(law).acted is not Law.acted]
        self._looked_s = self._next_s = sim.now_s
        sim.store.subscribe(self._changed)
        sim.on_write(self._acted)
        return facts

    def step(self, now: float) -> float | None:
        """Look, when it is time."""
        facts = self._facts
        if facts is None:
            return None
        if now >= self._next_s:
            facts.lived_s += now - self._looked_s if facts.sim.able else 0.0
            self._looked_s, self._next_s = now, now + LOOK_S
            for law in self._laws:
                law.looked()
        return self._next_s

    def rested(self) -> None:
        """Tell that an hour of rest has passed."""
        for law in self._laws:
            law.rested()

    def ended(self) -> None:
        """Tell that it is over."""
        for law in self._laws:
            law.ended()

    def _changed(self, event: StoreEvent) -> None:
        if self._facts is not None:
            self._facts.changed(event)
        for changed in self._hearing_changes:
            changed(event)

    def _acted(self, write: AgentWrite) -> None:
        for acted in self._hearing_writes:
            acted(write)
