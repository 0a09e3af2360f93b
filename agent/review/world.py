"""What a review reads beside the forge: what the last pass of all deciders saw, and the commits that are proposed."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from typing import Final, NamedTuple, Protocol

from agent.planning import KnownRun
from agent.review.approvers import Approver
from agent.sync import SyncState
from agent.watch import Watcher
from fleet.plan import happens_anyway
from fleet.review.comment import base_not_in_force, joined
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.index import Index
from providers.clock import Clock
from providers.git.files import Files


class LastPass(NamedTuple):
    """What a request is planned in."""

    fleet: Fleet
    snapshot: Snapshot


class PlannedRequest(NamedTuple):
    """When a request was last planned, in which world, who approved it, and what was said beside the plan."""

    world: LastPass
    at_s: float
    approvers: tuple[Approver, ...]
    beside: str

    def stands(self, world: LastPass, approvers: tuple[Approver, ...], beside: str) -> bool:
        """Returns whether all of it is so but for what was observed, which changes all the time."""
        return self.world.fleet is world.fleet and (self.approvers, self.beside) == (approvers, beside)


def said_beside(state: SyncState, base: str) -> str:
    """Returns the sentence to the plan of a request that tells what else stands between it and coming into force."""
    return joined(_suspended(state), base_not_in_force(base, state.attempted, state.applied, state.outcome))


def with_suspended(state: SyncState) -> SyncState:
    """Returns the state with a revision that waits for nothing but `muster resume` as the one that was attempted."""
    if not state.suspended or state.observed in ("", state.attempted, state.applied, state.passed_by):
        return state
    words = _suspended(state)
    return replace(state, attempted=state.observed, outcome="Suspended", message=words, plan=None, problems=())


def _suspended(state: SyncState) -> str:
    why = f": {state.suspend_reason}" if state.suspend_reason else ""
    return f"No revision comes into force for now{why}" if state.suspended else ""


class LatestWorld(Watcher):
    """Keeps what the last pass of all deciders saw: values, which another thread may look at.

    `wake` is called where a revision begins or ceases to wait for approval or for `muster resume`, or is done: the
    forge is asked, or told.
    """

    def __init__(self, state: Callable[[], SyncState], wake: Callable[[], None]) -> None:
        self.now: LastPass | None = None
        self._wake = wake
        self._state = state
        self._stood: tuple[str, ...] = ()

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """A pass of all deciders is over."""
        self.now = LastPass(fleet, snapshot)
        state = self._state()
        phase = state.convergence.phase.value if state.convergence else ""
        stands = (state.attempted, state.outcome, phase, _suspended(state), state.observed if state.suspended else "")
        if stands != self._stood:
            self._stood = stands
            self._wake()


SAME_WORLD_S: Final = 120.0
"""For how long a run counts while nothing changes: what falls due meanwhile is so much further off in it."""
_MOVING: Final = frozenset(
    {"now_s", "instances_at_s", "reservations_at_s", "index", "busy", "spent_usd", "local_usage"}
)
"""What a snapshot has of the time, and of what passes with it."""
_TOLD: Final = tuple(it.name for it in fields(Snapshot) if it.name not in _MOVING)


class _Begun(NamedTuple):
    world: LastPass
    at_s: float
    run: "Future[KnownRun]"


@dataclass(slots=True)
class RunsWithoutChange:
    """Finds out what happens without any request, once for all requests that are planned in the same world.

    That is half of what a plan costs, and it begins while the commits are still being fetched.
    """

    clock: Clock
    _begun: _Begun | None = None

    def begin(self, world: LastPass) -> Callable[[], KnownRun]:
        """Begins with it, unless it has begun; calling what is returned waits for it, and raises what it raised."""
        now_s, begun = self.clock.monotonic(), self._begun
        if begun is None or now_s - begun.at_s >= SAME_WORLD_S or not _is_same(begun.world, world) or _failed(begun):
            begun = self._begun = _Begun(world, now_s, Future())
            threading.Thread(target=_run, args=(world, begun.run), name="without-change", daemon=True).start()
        return begun.run.result


def _failed(begun: _Begun) -> bool:
    return begun.run.done() and begun.run.exception() is not None


def _is_same(one: LastPass, other: LastPass) -> bool:
    told = (getattr(one.snapshot, name) == getattr(other.snapshot, name) for name in _TOLD)
    return one.fleet is other.fleet and all(told)


def _run(world: LastPass, found: "Future[KnownRun]") -> None:
    try:
        snapshot = replace(world.snapshot, index=Index())  # the brain goes on deriving views of its own
        found.set_result(KnownRun(world.fleet, world.snapshot, happens_anyway(world.fleet, snapshot)))
    except Exception as error:  # noqa: BLE001  the thread's end: whoever waits shows it as that request's failure
        found.set_exception(error)


class ProposedCommits(Protocol):
    """The fleet repository, for commits that are not in force: fetched and read by a bounded child, never run."""

    def fetch_ref(self, name: str) -> str:
        """Fetches a ref by full name and returns its commit. Errors: SourceError."""
        ...

    def merged_files(self, base_oid: str, head_oid: str) -> Files:
        """Returns the files after merging a commit into another, by path from the repository's root.

        Errors: MergeConflict and other SourceErrors.
        """
        ...
