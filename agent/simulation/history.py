"""A history: what happens to one simulated fleet, as data, so that it can be told again, shortened and kept."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Doc = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One thing that happens from outside: somebody does something, or something breaks.

    `pick` in [0, 1) chooses among what there is at that moment (the nodes, the claims, ... in order of their names), so
    that an event still means something when others are left out. `args` are the operation's own.
    """

    at_s: float
    """Seconds from the beginning."""
    kind: str
    """Name of the operation (`agent.simulation.operations`)."""
    pick: float = 0.0
    args: Mapping[str, Any] = field(default_factory=dict)

    def words(self) -> str:
        """The event in one line."""
        said = ", ".join(f"{key}={_short(value)}" for key, value in self.args.items())
        return f"{self.kind} {said}".strip()


def _short(value: Any) -> str:
    if isinstance(value, dict) and "kind" in value:
        return f"{value.get('kind', '')}/{value['metadata']['name']}"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True, slots=True)
class DrawnHistory:
    """A seed's events in order of time; what comes after `active_s` is rest: faults are over and people sleep."""

    seed: int
    profile: str
    events: Sequence[HistoryEvent]
    active_s: float = 1800.0
    agents: int = 1
    foresees: bool = True
    """Whether pushes are planned with foresight (see `Tempo`)."""
    release: str = "1.36"
    """Minor release of the API server."""

    def dump(self) -> dict[str, Any]:
        """The history as JSON."""
        return {**asdict(self), "events": [asdict(event) for event in self.events]}

    @classmethod
    def load(cls, kept: Mapping[str, Any]) -> "DrawnHistory":
        """The history that `dump` wrote."""
        return cls(**{**kept, "events": tuple(HistoryEvent(**event) for event in kept["events"])})
