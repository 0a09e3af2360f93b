"""Plays a history: a simulation, its events in time, a rest, and what the laws say of it."""

import heapq
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any

from agent.simulation.checker import Checker
from agent.simulation.drawing import sold
from agent.simulation.faults import FAULTS
from agent.simulation.history import DrawnHistory, HistoryEvent
from agent.simulation.laws.facts import Facts, Violation
from agent.simulation.operations import PEOPLE, Effect
from agent.simulation.process import Tempo
from agent.simulation.seat import Supervisor
from agent.simulation.world import Simulation
from agent.simulation.writes import WriteDigest
from providers.sim.store import RELEASES, ApiError

REST_S = 3600.0
SHORT_REST_S = 1500.0
"""Rest enough where all work runs: what is idle then must have gone by the end of it."""
TEMPO = Tempo(tick_s=60.0, slowest_tick_s=300.0, listing_s=30.0, attempts=3)
STILL_S = 10 * TEMPO.tick_s
"""Ten more turns."""
Say = Callable[[float, str], None]
"""Seconds from the beginning, and words."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a history."""

    seed: int
    profile: str
    digest: str
    """Hash of all writes: the same history gives the same."""
    writes: int
    violations: tuple[Violation, ...]
    machines: int
    usd: float
    cpu_s: float

    def row(self) -> dict[str, Any]:
        """The outcome as a row of JSON."""
        violations = [violation._asdict() for violation in self.violations]
        return {**asdict(self), "violations": violations, "usd": round(self.usd, 2), "cpu_s": round(self.cpu_s, 3)}


class Player:
    """Plays one history; `say` hears of everything that happens."""

    def __init__(self, history: DrawnHistory, say: Say | None = None) -> None:
        self._history = history
        self._say = say
        checker, supervisor = Checker(), Supervisor()
        self.sim = Simulation(
            catalog=sold(),
            tempo=replace(TEMPO, foresees=history.foresees),
            more=[supervisor, checker],
            agents=history.agents,
            release=RELEASES[history.release],
        )
        supervisor.seats = self.sim.seats
        self._start_s = self.sim.now_s
        self._checker = checker
        self.facts: Facts = checker.watch(self.sim)
        self.digest = WriteDigest(self.sim.clock)
        self.sim.store.subscribe(self.digest.changed)
        self.sim.on_write(self.digest.acted)
        if say is not None:
            self.sim.on_write(lambda write: say(write.at_s - self._start_s, write.words()))
        self._undoing: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def play(self) -> None:
        """To the end, with the rest. Raises what the agent or the simulation raises."""
        history = self._history
        for event in history.events:
            self._advance_to(event.at_s)
            self._act(event)
        self._advance_to(history.active_s)
        while self._undoing:
            self._undo()
        self.facts.rest()
        self.sim.advance(SHORT_REST_S)
        if self.facts.waiting():
            self.sim.advance(REST_S - SHORT_REST_S)
        self._checker.rested()
        self.sim.advance(STILL_S)
        self._checker.ended()

    def _advance_to(self, at_s: float) -> None:
        while self._undoing and self._undoing[0][0] <= at_s:
            self._wait(self._undoing[0][0])
            self._undo()
        self._wait(at_s)

    def _wait(self, at_s: float) -> None:
        self.sim.advance(max(0.0, self._start_s + at_s - self.sim.now_s))

    def _undo(self) -> None:
        heapq.heappop(self._undoing)[-1]()

    def _act(self, event: HistoryEvent) -> None:
        try:
            effect = OPERATIONS[event.kind](self.sim, event)
        except ApiError:
            effect = None
        if self._say is not None:
            self._say(event.at_s, f"-- {event.words()}: {_shown(effect)}")
        if effect is None:
            return
        self.facts.happened(event.kind, effect.subjects)
        if effect.undo is not None:
            self.sim.hindrances += effect.hinders
            until_s = min(self._history.active_s, event.at_s + float(event.args.get("for_s", 600.0)))
            heapq.heappush(self._undoing, (until_s, next(self._order), lambda: self._over(event, effect)))

    def _over(self, event: HistoryEvent, effect: Effect) -> None:
        if effect.undo is not None:
            effect.undo()
        self.sim.hindrances -= effect.hinders
        self.facts.happened(f"{event.kind} is over", effect.subjects)
        if self._say is not None:
            self._say(self.sim.now_s - self._start_s, f"-- {event.kind} is over")


def _shown(effect: Effect | None) -> str:
    return "nothing to do it to" if effect is None else ", ".join(effect.subjects) or "done"


OPERATIONS = {**PEOPLE, **FAULTS}


def play(history: DrawnHistory, say: Say | None = None) -> Outcome:
    """What becomes of a history."""
    began_s = time.process_time()
    player = Player(history, say)
    try:
        player.play()
    except Exception as error:  # noqa: BLE001  what fails in a history is its outcome
        player.facts.broken("nothing fails", type(error).__name__, str(error)[:500])
    ledger = player.sim.cloud.ledger()
    return Outcome(
        history.seed,
        history.profile,
        player.digest.value,
        player.digest.count,
        tuple(player.facts.violations),
        len(ledger),
        sum(entry.cost_usd for entry in ledger),
        time.process_time() - began_s,
    )
