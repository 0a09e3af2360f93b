"""Plays a history: a simulation, its events in time, a rest, and what the laws say of it."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from agent.simulation.checker import Checker
from agent.simulation.drawing import sold
from agent.simulation.history import DrawnHistory
from agent.simulation.laws.facts import Violation
from agent.simulation.operations import act
from agent.simulation.process import Tempo
from agent.simulation.world import Simulation
from agent.simulation.writes import WriteDigest

REST_S = 3600.0
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


def play(history: DrawnHistory, say: Say | None = None) -> Outcome:
    """Play a history to its end; `say` hears of everything that happens."""
    began_s = time.process_time()
    checker = Checker()
    sim = Simulation(catalog=sold(), tempo=Tempo(tick_s=15.0, listing_s=15.0), more=[checker])
    start_s = sim.now_s
    facts, digest = checker.watch(sim), WriteDigest(sim.clock)
    sim.store.subscribe(digest.changed)
    sim.on_write(digest.acted)
    if say is not None:
        sim.on_write(lambda write: say(write.at_s - start_s, write.words()))
    try:
        _run(sim, history, say)
    except Exception as error:  # noqa: BLE001  what fails in a history is its outcome
        facts.broken("nothing fails", type(error).__name__, str(error)[:500])
    ledger = sim.cloud.ledger()
    return Outcome(
        history.seed,
        history.profile,
        digest.value,
        digest.count,
        tuple(facts.violations),
        len(ledger),
        sum(entry.cost_usd for entry in ledger),
        time.process_time() - began_s,
    )


def _run(sim: Simulation, history: DrawnHistory, say: Say | None) -> None:
    start_s = sim.now_s
    for event in history.events:
        sim.advance(max(0.0, start_s + event.at_s - sim.now_s))
        done = act(sim, event)
        if say is not None:
            say(event.at_s, f"-- {event.words()}{'' if done else ' (nothing to do)'}")
    sim.advance(max(0.0, start_s + history.active_s - sim.now_s))
    sim.advance(REST_S)
