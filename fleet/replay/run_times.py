"""How long runs take, learned of those that have ended: by queue, user and shape, each kind when enough of it is known.

What is learned is a value: the agent's thread keeps the newest, another thread draws from the one before.
"""

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
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
    kind: Hashable = None
    """Which runs it is learned of: gangs of the same kind draw from the same."""
    in_turn: Sequence[float] = ()
    """What was learned of them, in the order in which their gangs came; empty where nothing was."""
    in_order: Sequence[float] = ()
    """The same, the shortest first."""

    def rank(self, learned: float) -> float:
        """Returns how many of those learned are shorter; of equal ones the middle."""
        equal = bisect_right(self.in_order, learned) - bisect_left(self.in_order, learned)
        return bisect_left(self.in_order, learned) + (equal - 1) / 2

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
        for _, key, unit_s in _kinds(ended.gang):
            self._put(key, ended.gang.created_at_s, ended.ran_s / unit_s)

    def with_open(self, runs: Iterable[tuple[Gang, float]], level: Callable[[str], float]) -> "RunTimes":
        """Returns what is known when runs that have not ended, and how long they have taken (s), count as well.

        Those that have ended are the short ones. An open run counts as an ended one that was longer than it is now
        (redistribution to the right: Efron, 1967, the product-limit estimate), which one by the level of its uid.

        That holds of runs of which all are known, ended or open. Of a kind with more ends than are kept those are the
        runs that came after all that are forgotten: beside the newest ends of many years, which are as short and as
        long as all, the open ones, of which the long ones are more, made a median a tenth too long.
        """
        found, own = RunTimes(OrderedDict(self._ends)), dict[Hashable, _Ends]()
        for gang, ran_s in runs:
            spread = self.spread(gang)
            if not spread.in_turn:
                continue
            ends_s = max(ran_s, spread.at(level(gang.uid), ran_s))
            for basis, key, unit_s in _kinds(gang):
                ends = self._known(key, _least(basis))
                if ends is None or gang.created_at_s <= ends.since_s:
                    continue
                if key not in own:
                    own[key] = ends.of_those_since()
                if len(own[key].ordered) >= _least(basis):
                    found._ends[key] = own[key]
                    own[key].put(gang.created_at_s, ends_s / unit_s, 2 * ENDS_KEPT)
        return found

    def _put(self, key: Hashable, came_s: float, value: float) -> None:
        found = self._ends.get(key)
        if found is None:
            found = self._ends[key] = _Ends()
        self._ends.move_to_end(key)
        found.put(came_s, value)
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
        found = self._learned(gang)
        if most_s is None or not found.times_s:
            return found
        return replace(found, times_s=[min(most_s, it) for it in found.times_s])

    def _learned(self, gang: Gang) -> RunTimeSpread:
        """Returns what a gang says, by how far such words were off, or what is known of runs like it.

        While few of those who said anything have ended, it counts as it is said.
        """
        for basis, key, unit_s in _kinds(gang):
            if gang.expected_run_s and basis is not RunTimeBasis.DECLARED:
                break
            if ends := self._known(key, _least(basis)):
                return RunTimeSpread(
                    basis, [unit_s * it for it in ends.ordered], key, ends.in_turn, tuple(ends.ordered)
                )
        if gang.expected_run_s:
            return RunTimeSpread(RunTimeBasis.DECLARED, [gang.expected_run_s] * FEW)
        return NO_SPREAD

    def _known(self, key: Hashable, least: int) -> "_Ends | None":
        found = self._ends.get(key)
        return found if found is not None and len(found.ordered) >= least else None


def _least(basis: RunTimeBasis) -> int:
    return FEW if basis is RunTimeBasis.ALL else ENOUGH


@dataclass(slots=True)
class _Ends:
    """The newest values of one kind, each with when its gang had come, in order of their ends and of size."""

    newest: deque[tuple[float, float]] = field(default_factory=deque)
    ordered: list[float] = field(default_factory=list)
    turns: Sequence[float] = ()
    since_s: float = -inf
    """When the last one came of those that are forgotten (epoch seconds)."""

    def put(self, came_s: float, value: float, most: int = ENDS_KEPT) -> None:
        self.turns = ()
        self.newest.append((came_s, value))
        insort(self.ordered, value)
        if len(self.newest) > most:
            forgotten_s, oldest = self.newest.popleft()
            self.since_s = max(self.since_s, forgotten_s)
            del self.ordered[bisect_right(self.ordered, oldest) - 1]

    def of_those_since(self) -> "_Ends":
        """Returns the ends of the runs that came after all that are forgotten."""
        newest = deque(it for it in self.newest if it[0] > self.since_s)
        return _Ends(newest, sorted(value for _, value in newest))

    @property
    def in_turn(self) -> Sequence[float]:
        if not self.turns:
            self.turns = [value for _, value in sorted(self.newest)]
        return self.turns


def _kinds(gang: Gang) -> Iterator[tuple[RunTimeBasis, Hashable, float]]:
    """Yields the kinds that a gang's runs are of, the closest first, and in what their times are counted (s)."""
    queue = gang.namespace, gang.queue
    size = devices(gang)
    if gang.expected_run_s:
        yield RunTimeBasis.DECLARED, (RunTimeBasis.DECLARED, *queue), gang.expected_run_s
        yield RunTimeBasis.DECLARED, RunTimeBasis.DECLARED, gang.expected_run_s
    stem = gang.job.name.rstrip("0123456789.-_")
    if stem and stem != gang.job.name:
        yield RunTimeBasis.NAME, (RunTimeBasis.NAME, *queue, stem, size), 1.0
    if user := user_of(gang, labels.USER):
        yield RunTimeBasis.USER, (RunTimeBasis.USER, *queue, user, size), 1.0
    yield RunTimeBasis.SHAPE, (RunTimeBasis.SHAPE, *queue, size), 1.0
    yield RunTimeBasis.QUEUE, (RunTimeBasis.QUEUE, *queue), 1.0
    yield RunTimeBasis.ALL, RunTimeBasis.ALL, 1.0
