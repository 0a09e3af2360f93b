"""The shrinker: leaves out of a history what a violation does not need, and writes the rest as a scene for tests."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.simulation.history import DrawnHistory, HistoryEvent

Breaks = Callable[[DrawnHistory], bool]
"""Whether a history still breaks the law in question."""


def shrunk(history: DrawnHistory, breaks: Breaks) -> DrawnHistory:
    """The history without events that are not needed, in ever smaller pieces (Zeller's ddmin), the first push kept."""
    first, rest = history.events[:1], list(history.events[1:])
    size = max(1, len(rest) // 2)
    while rest:
        kept = _without(history, first, rest, size, breaks)
        if len(kept) == len(rest) and size == 1:
            break
        size = max(1, size // 2) if len(kept) == len(rest) else min(size, max(1, len(kept) // 2))
        rest = kept
    return replace(history, events=(*first, *rest))


def _without(
    history: DrawnHistory, first: Sequence[HistoryEvent], rest: list[HistoryEvent], size: int, breaks: Breaks
) -> list[HistoryEvent]:
    """One pass over the pieces of a size: each is left out for good where the law is broken without it."""
    at = 0
    while at < len(rest):
        tried = rest[:at] + rest[at + size :]
        if breaks(replace(history, events=(*first, *tried))):
            rest = tried
        else:
            at += size
    return rest


SCENE = '''"""Found by `python -m agent.simulation --profile {profile} --seed {seed}`: {law}."""

from agent.simulation.history import DrawnHistory
from agent.simulation.play import play

HISTORY = {history}


def test_{name}() -> None:
    outcome = play(DrawnHistory.load(HISTORY))
    assert {law!r} not in {{violation.law for violation in outcome.violations}}
'''


def scene(history: DrawnHistory, law: str) -> str:
    """A test that plays the history and fails as long as the law is broken."""
    name = f"{law}_{history.profile}_{history.seed}".replace(" ", "_").replace("-", "_")
    found = _written(history.dump())
    return SCENE.format(profile=history.profile, seed=history.seed, law=law, history=found, name=name)


def _written(value: object, indent: int = 0) -> str:
    """A value as Python writes it, long texts line by line."""
    inside = " " * (indent + 4)
    if isinstance(value, dict) and value:
        parts = [f"{inside}{key!r}: {_written(it, indent + 4)},\n" for key, it in value.items()]
        return "{\n" + "".join(parts) + " " * indent + "}"
    if isinstance(value, list | tuple) and value:
        return "[\n" + "".join(f"{inside}{_written(it, indent + 4)},\n" for it in value) + " " * indent + "]"
    if isinstance(value, str) and "\n" in value:
        lines = "".join(f"{inside}{line!r}\n" for line in value.splitlines(keepends=True))
        return f"(\n{lines}{' ' * indent})"
    return repr(value)
