"""How long runs take, learned of those that have ended: by queue, user and shape, each kind when enough of it is known.

What is learned is a value: the agent's thread keeps the newest, another thread draws from the one before.
"""

from bisect import bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from fleet.cost.lost_work import devices
from fleet.cost.uses import user_of
from fleet.replay.submissions import SubmittedGang
from fleet.snapshot import Gang
from model import labels

ENDS_KEPT: Final = 200
"""Newest ends of each kind that are drawn from."""
KINDS_KEPT: Final = 4_096
"""Kinds of runs that are known at once; the one that has ended nothing for longest is forgotten first."""
ENOUGH: Final = 10
"""Ends of a kind from which on it is drawn from; with fewer, a more general kind is."""
FEW: Final = 3
"""Ends of all kinds together, below which nothing is known."""


class RunTimeBasis(StrEnum):
    """What an expected run time stands on."""

    DECLARED = "Declared"
    """What the gang has said, and how far such words were from the truth."""
    NAME = "RunsOfThisName"
    """Ended runs of its queue whose jobs are called the same but for numbers, with as many GPUs."""
    USER = "RunsOfThisUser"
    """Ended runs of its queue and user with as many GPUs."""
    SHAPE = "RunsOfThisShape"
    """Ended runs of its queue with as many GPUs."""
    QUEUE = "RunsOfThisQueue"
    ALL = "RunsOfAllQueues"
    NOTHING = "Nothing"


class EndedRun(NamedTuple):
    """A run that has ended: whose, and how long it took (s)."""

    gang: Gang
    ran_s: float


def ended_run(work: SubmittedGang) -> EndedRun:
    """Returns the run of a gang as the record has it."""
    job = work.job()
    gang = Gang(
        work.uid, work.namespace, "", job.ref, work.queue, work.priority_class, 0, job.pod_sets, work.submitted_s,
        expected_run_s=work.expected_run_s,
    )  # fmt: skip
    return EndedRun(gang, work.run_s)


@dataclass(frozen=True, slots=True)
class RunTimeSpread:
    """How long one gang may run from its admission on: equally likely times (s), in order, and what they stand on."""

    basis: RunTimeBasis
    times_s: Sequence[float]

    def at(self, level: float, ran_s: float = 0.0) -> float:
        """Returns the time (s) at a level between 0 and 1, of a gang that has run for so long already.

        Where it has outrun nearly all that is known, what is left is as long as what has passed, in the median (a
        Pareto tail): the longer something has run, the longer it will.
        """
        longer = self.times_s[bisect_right(self.times_s, ran_s) :]
        if len(longer) < FEW:
            return ran_s + max(60.0, ran_s) * min(level / (1.0 - level), 50.0) if level < 1.0 else ran_s * 51
        return longer[min(len(longer) - 1, int(level * len(longer)))]


NO_SPREAD: Final = RunTimeSpread(RunTimeBasis.NOTHING, ())


@dataclass(slots=True)
class RunTimes:
    """What has been learned of ended runs. One thread learns; `spread` may be asked by another."""

    _ends: "OrderedDict[Hashable, _Ends]" = field(default_factory=OrderedDict)

    def learn(self, ended: EndedRun) -> None:
        """Takes in a run that has ended."""
        gang = ended.gang
        for _, key in _kinds(gang):
            self._put(key, ended.ran_s)
        if gang.expected_run_s:
            self._put(_DECLARED, ended.ran_s / gang.expected_run_s)
            self._put((_DECLARED, gang.namespace, gang.queue), ended.ran_s / gang.expected_run_s)

    def _put(self, key: Hashable, value: float) -> None:
        found = self._ends.get(key)
        if found is None:
            found = self._ends[key] = _Ends()
        self._ends.move_to_end(key)
        found.put(value)
        while len(self._ends) > KINDS_KEPT:
            self._ends.popitem(last=False)

    @property
    def ends(self) -> int:
        """Returns how many ends are known of all queues, up to `ENDS_KEPT`."""
        found = self._ends.get(RunTimeBasis.ALL)
        return len(found.ordered) if found is not None else 0

    def spread(self, gang: Gang) -> RunTimeSpread:
        """Returns how long a gang may run, by the closest kind of which enough is known."""
        most_s = gang.max_run_s
        found = self._declared(gang) or self._learned(gang)
        if most_s is None or not found.times_s:
            return found
        return RunTimeSpread(found.basis, [min(most_s, it) for it in found.times_s])

    def _declared(self, gang: Gang) -> RunTimeSpread | None:
        """Returns what it says, by how far such words were off; as it is while few of those have ended."""
        if not gang.expected_run_s:
            return None
        for key in ((_DECLARED, gang.namespace, gang.queue), _DECLARED):
            ratios = self._known(key, ENOUGH)
            if ratios:
                return RunTimeSpread(RunTimeBasis.DECLARED, [gang.expected_run_s * it for it in ratios])
        return RunTimeSpread(RunTimeBasis.DECLARED, [gang.expected_run_s] * FEW)

    def _learned(self, gang: Gang) -> RunTimeSpread:
        for basis, key in _kinds(gang):
            if times := self._known(key, FEW if basis is RunTimeBasis.ALL else ENOUGH):
                return RunTimeSpread(basis, times)
        return NO_SPREAD

    def _known(self, key: Hashable, least: int) -> Sequence[float]:
        found = self._ends.get(key)
        return tuple(found.ordered) if found is not None and len(found.ordered) >= least else ()


_DECLARED: Final = "declared"


@dataclass(slots=True)
class _Ends:
    """The newest values of one kind, in order of time and of size."""

    newest: deque[float] = field(default_factory=deque)
    ordered: list[float] = field(default_factory=list)

    def put(self, value: float) -> None:
        self.newest.append(value)
        insort(self.ordered, value)
        if len(self.newest) > ENDS_KEPT:
            oldest = self.newest.popleft()
            del self.ordered[bisect_right(self.ordered, oldest) - 1]


def _kinds(gang: Gang) -> Iterator[tuple[RunTimeBasis, Hashable]]:
    """Yields the kinds that a gang's runs are of, the closest first."""
    queue = gang.namespace, gang.queue
    size = devices(gang)
    stem = gang.job.name.rstrip("0123456789.-_")
    if stem and stem != gang.job.name:
        yield RunTimeBasis.NAME, (RunTimeBasis.NAME, *queue, stem, size)
    if user := user_of(gang, labels.USER):
        yield RunTimeBasis.USER, (RunTimeBasis.USER, *queue, user, size)
    yield RunTimeBasis.SHAPE, (RunTimeBasis.SHAPE, *queue, size)
    yield RunTimeBasis.QUEUE, (RunTimeBasis.QUEUE, *queue)
    yield RunTimeBasis.ALL, RunTimeBasis.ALL
