"""Tables of the mirror: the objects of one kind as the brain believes them to be.

A belief is what was last observed, or, between an action and its echo from the API, what the action will have made of
it. Assumptions end when the watch has passed the action's resourceVersion, when the action failed, or after a while.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from model.index import MOST_LOGGED, LoggedTable
from providers.kube.batches import Batch, Replace, told

T = TypeVar("T")

ASSUMED_AT_MOST_S = 30.0
"""An echo that has not come by then is not waited for: what the API shows counts again."""


@dataclass(slots=True)
class _Assumption(Generic[T]):
    underneath: T | None
    """What the API last showed; None = nothing."""
    version: int | None
    """resourceVersion of the write, once it is through."""
    until_s: float
    shown: Callable[[T | None], bool] | None = None
    """Whether a state that the API shows is what was assumed, for writes whose answer has no resourceVersion."""


class MirrorTable(Generic[T]):
    """Keeps the believed objects of one kind by key. `on_change(key, before, after)` is called for every change."""

    def __init__(self, on_change: Callable[[str, T | None, T | None], None] | None = None) -> None:
        self.current: dict[str, T] = {}
        self.synced = False
        self._assumptions: dict[str, _Assumption[T]] = {}
        self._on_change = on_change
        self._seen_version = 0
        self._view: Mapping[str, T] | None = None
        self._log: list[str] = []

    def __len__(self) -> int:
        return len(self.current)

    @property
    def view(self) -> Mapping[str, T]:
        """What is believed now, for good: the same object until a belief changes."""
        if self._view is None:
            self._view = LoggedTable(self.current, self._log)
        return self._view

    def observe(self, batch: Batch[T]) -> None:
        """Folds a reflector's batch in."""
        for key, value in told(batch, self.current.keys() | self._assumptions.keys()):
            assumption = self._assumptions.get(key)
            if assumption is None:
                self._believe(key, value)
            else:
                assumption.underneath = value
                if assumption.shown is not None and assumption.shown(value):
                    self._end(key)
        self.synced = self.synced or isinstance(batch, Replace)
        self._seen_version = max(self._seen_version, _number(batch.resource_version))
        for key in [key for key, it in self._assumptions.items() if it.version and it.version <= self._seen_version]:
            self._end(key)

    def assume(
        self,
        key: str,
        value: T | None,
        now_s: float,
        shown: Callable[[T | None], bool] | None = None,
        at_most_s: float = ASSUMED_AT_MOST_S,
    ) -> None:
        """Believe `value` (None = gone) from now on, because an action under way will make it so.

        It ends with the first state observed of which `shown` says so; None: with the resourceVersion of the write.
        """
        known = self._assumptions.get(key)
        underneath = known.underneath if known else self.current.get(key)
        self._assumptions[key] = _Assumption(underneath, None, now_s + at_most_s, shown)
        self._believe(key, value)

    def confirm(self, key: str, version: str, value: T | None = None) -> None:
        """The write behind an assumption is through with this resourceVersion (empty: not known)."""
        assumption = self._assumptions.get(key)
        if assumption is None:
            return
        if value is not None:
            self._believe(key, value)
        assumption.version = _number(version) or None
        if assumption.version is not None and assumption.version <= self._seen_version:
            self._end(key)

    def reject(self, key: str) -> None:
        """The action failed: what the API shows counts."""
        if key in self._assumptions:
            self._end(key)

    def expire(self, now_s: float) -> None:
        """Let go of assumptions nobody confirmed in time."""
        for key in [key for key, it in self._assumptions.items() if it.until_s <= now_s]:
            self._end(key)

    def _end(self, key: str) -> None:
        self._believe(key, self._assumptions.pop(key).underneath)

    def _believe(self, key: str, value: T | None) -> None:
        before = self.current.get(key)
        if before == value:
            return  # heartbeats and the like: nothing that anybody here looks at has changed
        self._view = None
        if len(self._log) >= MOST_LOGGED:
            self._log = []
        self._log.append(key)
        if value is None:
            self.current.pop(key, None)
        else:
            self.current[key] = value
        if self._on_change is not None:
            self._on_change(key, before, value)


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0
