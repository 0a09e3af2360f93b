"""Which histories are drawn: a profile says what may go wrong in them, a seed which of that does, and when."""

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final

from agent.simulation.drawing import Docs, drawn_change, drawn_fleet, drawn_mistake, drawn_work, text_of
from agent.simulation.history import DrawnHistory, HistoryEvent

ACTIVE_S: Final = 2700.0
Drawn = Iterator[HistoryEvent]


def drawn_history(seed: int, profile: str) -> DrawnHistory:
    """The history of a seed: the same for the same seed and profile, whatever was drawn before."""
    rng = Random(f"{profile}:{seed}")
    docs = drawn_fleet(rng)
    events = [HistoryEvent(0.0, "push", args={"text": text_of(docs)}), *_life(rng, docs), *PROFILES[profile](rng)]
    return DrawnHistory(seed, profile, tuple(sorted(events, key=lambda event: event.at_s)), ACTIVE_S)


def _at(rng: Random, begin_s: float = 1.0, end_s: float = ACTIVE_S) -> float:
    return round(rng.uniform(begin_s, end_s), 1)


def _event(rng: Random, kind: str, **args: Any) -> HistoryEvent:
    return HistoryEvent(_at(rng, 60.0), kind, round(rng.random(), 4), args)


def _life(rng: Random, docs: Docs) -> Drawn:
    """Work comes and goes, is scaled, and the fleet is changed; as anywhere."""
    for number in range(rng.randint(3, 9)):
        at_s = _at(rng, 1.0, 60.0) if rng.random() < 0.5 else _at(rng, 1.0, ACTIVE_S * 0.8)
        yield HistoryEvent(at_s, "submit", args={"manifest": drawn_work(rng, docs, f"j{number}")})
    for _ in range(rng.choice((0, 1, 2, 3))):
        yield _event(rng, "delete_job")
    for _ in range(rng.choice((0, 0, 1))):
        yield _event(rng, "scale_job", pods=rng.randint(1, 4))
    for at_s in sorted(_at(rng, 120.0) for _ in range(rng.choice((0, 0, 1, 1, 2, 3)))):
        docs = drawn_change(rng, docs)
        yield HistoryEvent(at_s, "push", args={"text": text_of(docs)})
    if rng.random() < 0.2:
        yield HistoryEvent(_at(rng, 60.0), "push", args={"text": drawn_mistake(rng, docs)})


def _calm(rng: Random) -> Drawn:
    del rng
    yield from ()


PROFILES: Final[Mapping[str, Callable[[Random], Drawn]]] = {"calm": _calm}
"""Name -> what happens beside the work and the pushes."""
