"""Guard rails: what one revision may do at most, and all revisions of a day together.

A refusal says which rail, by how much, and the line to write if it is meant.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Final

from pydantic.alias_generators import to_snake

from fleet.plan.changes import PlannedChange
from fleet.plan.consequences import GangImpact, HourlyBill
from fleet.plan.exposure import Exposure
from model.fleet import Fleet
from model.kinds.policy import DailyRails, GuardRails
from model.plain_text import counted, number_of

DAY_S: Final = 24 * 3600.0
MOST_TALLIES: Final = 32
"""Most that are kept of a day; beyond, the two oldest become one."""
LEAST_NODES_ADDED: Final = 10
LEAST_USD_H_ADDED: Final = 250.0
LEAST_USD_H_EXPOSED: Final = 1_000.0
LEAST_GANGS_EVICTED: Final = 3
"""What rails that are not written allow at least, however small the fleet."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a revision causes in the world it is for."""

    now_s: float
    """When that was foreseen (epoch seconds)."""
    machines: Sequence[PlannedChange]
    gangs: Sequence[GangImpact]
    now: HourlyBill
    """The present bill,"""
    without: HourlyBill
    """the one at the end without the revision,"""
    then: HourlyBill
    """and with it."""
    existing: int
    """Machines that exist now."""
    running: int = 0
    """Gangs that run now."""
    more_nodes_at_peak: int = 0
    """Machines beyond those without the revision, where there are most: also such as are given back again."""
    more_usd_h_at_peak: float = 0.0
    """Cost beyond that without the revision, where it is highest."""
    restless: bool = False
    """Whether it is the revision that keeps the fleet from coming to rest: what it does in the end is not known."""


@dataclass(frozen=True, slots=True)
class RevisionTally:
    """What a revision causes, in numbers. Those of revisions in force are kept for a day; one may stand for several."""

    at_s: float
    """When it came into force (epoch seconds), the last of several."""
    nodes_removed: int = 0
    nodes_added: int = 0
    usd_h_added: float = 0.0
    gangs_evicted: int = 0
    nodes: int = 0
    """Machines there were before, the most of several."""
    revisions: int = 1
    usd_h_exposed: float = 0.0
    """By how much it raised what limits let be spent."""

    @property
    def idle(self) -> bool:
        """Returns whether nothing came of it that a rail of the day counts."""
        return replace(self, at_s=0.0, nodes=0, revisions=1) == RevisionTally(0.0)

    def with_older(self, other: "RevisionTally") -> "RevisionTally":
        """Returns one for both: as late as this one, so that nothing is forgotten too soon."""
        return RevisionTally(
            self.at_s,
            self.nodes_removed + other.nodes_removed,
            self.nodes_added + other.nodes_added,
            self.usd_h_added + other.usd_h_added,
            self.gangs_evicted + other.gangs_evicted,
            max(self.nodes, other.nodes),
            self.revisions + other.revisions,
            self.usd_h_exposed + other.usd_h_exposed,
        )


def tally_of(seen: Foreseen, exposed: tuple[Exposure, Exposure] | None = None) -> RevisionTally:
    """Returns the numbers of what a revision causes: a burst that is over within the horizon is added, too.

    `exposed` is what limits let be spent before it and with it.
    """
    verbs = [change.verb for change in seen.machines]
    usd_h = max(0.0, round(seen.then.usd_h - seen.without.usd_h, 6), seen.more_usd_h_at_peak)
    stopped = sum(gang.stopped for gang in seen.gangs)
    added = max(verbs.count("create"), seen.more_nodes_at_peak)
    more_exposed = max(0.0, round(exposed[1].usd_h - exposed[0].usd_h, 6)) if exposed else 0.0
    return RevisionTally(
        seen.now_s, verbs.count("delete"), added, usd_h, stopped, seen.existing, usd_h_exposed=more_exposed
    )


def last_day(tallies: Sequence[RevisionTally], now_s: float) -> tuple[RevisionTally, ...]:
    """Returns those of the last 24 hours, oldest first.

    One from a time to come counts as of now: a clock that jumps backwards erases no day, and prolongs none for ever.
    """
    recent = (replace(it, at_s=min(it.at_s, now_s)) for it in tallies if it.at_s > now_s - DAY_S)
    return tuple(sorted(recent, key=lambda it: it.at_s))


def day_with(tallies: Sequence[RevisionTally], new: RevisionTally) -> tuple[RevisionTally, ...]:
    """Returns the day once a revision has come into force."""
    kept = last_day(tallies, new.at_s)
    if new.idle:
        return kept
    if len(kept) >= MOST_TALLIES:
        kept = (kept[1].with_older(kept[0]), *kept[2:])
    return (*kept, new)


@dataclass(frozen=True, slots=True)
class GuardedRevision:
    """A revision as the rails see it: what it changes, what would happen, and what has happened within the day."""

    before: Fleet
    after: Fleet
    first: bool
    """Whether nothing is in force yet: its own rails hold then."""
    seen: Foreseen | None = None
    """None without a world: only declarations can break a rail then."""
    day: Sequence[RevisionTally] = ()
    """What came of the revisions of the last 24 hours."""
    exposed: tuple[Exposure, Exposure] | None = None
    """What limits let be spent before it and with it; None where no prices are known."""

    @property
    def rails(self) -> GuardRails:
        """Returns the rails in force *before* it, so that one push cannot both lift a rail and run through it."""
        return (self.after if self.first else self.before).policy.spec.guard_rails


def refusals(revision: GuardedRevision) -> tuple[str, ...]:
    """Returns every rail that the revision would break, as sentences; empty = it may come into force.

    Replacements are not removals, and what would happen without the revision as well is not its doing.
    """
    seen = revision.seen
    day = last_day(revision.day, seen.now_s) if seen is not None else ()
    told = [_empty_fleet(revision), *_exposure(revision, day)]
    if seen is not None:
        own = tally_of(seen)
        told += [said for rail in _COUNTED for said in rail.broken(revision, seen, own, day)]
        told += [_nodes_replaced(revision, seen), _restless(seen)]
    return tuple(filter(None, told))


def _empty_fleet(revision: GuardedRevision) -> str:
    before, after = revision.before.node_pools, revision.after.node_pools
    if revision.rails.allow_empty_fleet or after or not before:
        return ""
    hint = "set guardRails.allowEmptyFleet in an earlier revision if that is meant"
    return f"it deletes every node pool ({len(before)}); {hint}"


def _exposure(revision: GuardedRevision, day: Sequence[RevisionTally]) -> Iterator[str]:
    """Yields sentences about what limits let be spent, whatever the queues hold, where the revision raises that."""
    if revision.exposed is None:
        return
    before, after = revision.exposed
    declared = _number(revision.rails.max_usd_per_hour_exposed)
    most, told = _exposable(before, declared, first=revision.first)
    if before.usd_h < after.usd_h > most:
        line = _meant(f"maxUsdPerHourExposed: {ceil(after.usd_h)}", revision)
        yield f"its limits let {after.usd_h:.2f} USD/h be spent{told}; {line}"
    elif before.usd_h < after.usd_h and declared is None and not revision.first:
        yield from _exposure_of_the_day(revision, after, before.usd_h - sum(it.usd_h_exposed for it in day), day)
    if most < inf and after.unbounded and not before.unbounded:
        names = ", ".join(after.unbounded)
        line = _meant("maxUsdPerHourExposed: Unlimited", revision)
        yield f"nothing bounds what node pools {names} may cost{told}; give them limits or, {line}"


def _exposure_of_the_day(
    revision: GuardedRevision, after: Exposure, a_day_ago_usd_h: float, day: Sequence[RevisionTally]
) -> Iterator[str]:
    """Yields a sentence where the revisions of a day together raise unwritten limits by more than two of them may."""
    more = 2 * max(LEAST_USD_H_EXPOSED, a_day_ago_usd_h)
    if after.usd_h <= a_day_ago_usd_h + more:
        return
    allowed = f"without guardRails.maxUsdPerHourExposed a day may raise it by {more:.2f}, twice what one revision may"
    before = f"{max(0.0, a_day_ago_usd_h):.2f} before"
    line = _meant(f"maxUsdPerHourExposed: {ceil(after.usd_h)}", revision)
    yield f"{_with(day)} lets {after.usd_h:.2f} USD/h be spent by its limits ({before}); {allowed}; {line}"


def _exposable(before: Exposure, declared: float | None, *, first: bool) -> tuple[float, str]:
    """Returns the most that limits may let be spent (USD an hour), and why; unwritten, it bounds no first revision."""
    if declared is not None:
        return declared, f", guardRails.maxUsdPerHourExposed allows {declared:.2f}"
    if first:
        return inf, ""
    most = max(before.usd_h + LEAST_USD_H_EXPOSED, 2 * before.usd_h)
    why = f"the greater of {LEAST_USD_H_EXPOSED:.0f} more than the present {before.usd_h:.2f} USD/h and twice as much"
    return most, f"; without guardRails.maxUsdPerHourExposed it may be {most:.2f} ({why})"


def _nodes_replaced(revision: GuardedRevision, seen: Foreseen) -> str:
    replaced = sum(change.verb == "replace" for change in seen.machines)
    most = _number(revision.rails.max_nodes_replaced)
    if most is None or replaced <= most:
        return ""
    allowed = f"guardRails.maxNodesReplaced allows {most:.0f}"
    return f"it replaces {counted(replaced, 'machine')}, {allowed}; {_meant(f'maxNodesReplaced: {replaced}', revision)}"


def _restless(seen: Foreseen) -> str:
    if not seen.restless:
        return ""
    return "under it the fleet never comes to rest, so that nothing bounds what it removes, stops and spends"


# -- rails that hold for one revision and for a day --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Allowance:
    """The most that is allowed, and how that is told, after "it adds 3 machines"."""

    most: float
    told: str = ""


@dataclass(frozen=True, slots=True)
class _CountedRail:
    """A rail on a number of a tally; `does` is a verb and what is counted, around the number."""

    name: str
    count: Callable[[RevisionTally], float]
    does: tuple[str, str]
    unset: Callable[[Foreseen], tuple[float, str]]
    """What holds where the rail is not written: the most, and why so many."""
    money: bool = False

    def broken(
        self, revision: GuardedRevision, seen: Foreseen, own: RevisionTally, day: Sequence[RevisionTally]
    ) -> Iterator[str]:
        """Yields a sentence if one revision does too much, and one if the day does."""
        mine, rails = self.count(own), revision.rails
        one = self._of_one(_declared(rails, self.name), seen)
        if mine > one.most:
            yield f"it {self._does(mine)}{one.told}; {_meant(self._line(mine), revision)}"
        together = mine + sum(map(self.count, day))
        all_day = self._of_day(_declared(rails.per_day, self.name), max(mine, one.most))
        if mine and together > all_day.most:
            line = f"perDay: {{{self._line(together)}}}"
            yield f"{_with(day)} {self._does(together)}{all_day.told}; {_meant(line, revision)}"

    def _of_one(self, declared: float | None, seen: Foreseen) -> _Allowance:
        if declared is not None:
            return _Allowance(declared, f", guardRails.{self.name} allows {self._written(declared)}")
        most, why = self.unset(seen)
        verb = self.does[0].removesuffix("s")
        return _Allowance(most, f"; without guardRails.{self.name} a revision may {verb} {self._written(most)} ({why})")

    def _of_day(self, declared: float | None, one: float) -> _Allowance:
        if declared is not None:
            return _Allowance(declared, f", guardRails.perDay.{self.name} allows {self._written(declared)}")
        most = self._written(2 * one) if one < inf else ""
        return _Allowance(2 * one, f"; without guardRails.perDay.{self.name} it may be {most}, twice what one may")

    def _does(self, number: float) -> str:
        verb, what = self.does
        one = what if self.money else what.removesuffix("s")
        return f"{verb} {self._written(number)} {number_of(number, one, what)}"

    def _written(self, number: float) -> str:
        return f"{number:.2f}" if self.money else f"{number:.0f}"

    def _line(self, needed: float) -> str:
        return f"{self.name}: {ceil(needed)}"


@dataclass(frozen=True, slots=True)
class _PercentRail:
    """The rail on removed machines as a part of those there are."""

    name: str = "maxPercentRemoved"

    def broken(
        self, revision: GuardedRevision, _seen: Foreseen, own: RevisionTally, day: Sequence[RevisionTally]
    ) -> Iterator[str]:
        """Yields a sentence if one revision removes too many, and one if the day does."""
        rails, mine = revision.rails, own.nodes_removed
        percent = _declared(rails, self.name) or 0.0
        if mine > _part(own.nodes, percent):
            allowed = f"guardRails.{self.name} allows {percent:.0f} % ({_part(own.nodes, percent)})"
            line = f"{self.name}: {_least_percent(own.nodes, mine)}"
            yield f"it removes {mine} of {counted(own.nodes, 'machine')}, {allowed}; {_meant(line, revision)}"
            return
        declared = _declared(rails.per_day, self.name)
        all_day = min(100.0, 2 * percent) if declared is None else declared
        together = mine + sum(it.nodes_removed for it in day)
        most = max([own.nodes, *(it.nodes for it in day)])
        if mine and together > _part(most, all_day):
            allowed = f"guardRails.perDay.{self.name} allows {all_day:.0f} % ({_part(most, all_day)})"
            line = f"perDay: {{{self.name}: {_least_percent(most, together)}}}"
            yield f"{_with(day)} removes {together} of {counted(most, 'machine')}, {allowed}; {_meant(line, revision)}"


def _meant(line: str, revision: GuardedRevision) -> str:
    """Returns the line that lifts a rail, and where it counts."""
    return f"if it is meant, write {line} in {'this' if revision.first else 'an earlier'} revision"


def _with(day: Sequence[RevisionTally]) -> str:
    """Returns what stands before a sentence about a day: how many revisions there were in it already."""
    several = sum(it.revisions for it in day)
    told = "the revision" if several == 1 else f"the {several} revisions"
    return f"with {told} of the last 24 hours it" if several else "it"


def _part(existing: int, percent: float) -> float:
    """Returns how many of the machines a percentage is: rounded up, and one at least."""
    return inf if percent == inf or not existing else max(1, ceil(existing * percent / 100))


def _least_percent(existing: int, removed: int) -> int | str:
    """Returns the least percentage that allows as many."""
    return (removed - 1) * 100 // existing + 1 if removed <= existing else "Unlimited"


def _declared(rails: GuardRails | DailyRails, name: str) -> float | None:
    return _number(getattr(rails, to_snake(name)))


def _number(written: float | str | None) -> float | None:
    """Returns what a rail allows; infinity for `Unlimited`, None for one that is not written."""
    return inf if isinstance(written, str) else written


def _unbounded(_seen: Foreseen) -> tuple[float, str]:
    return inf, ""


def _as_many_nodes(seen: Foreseen) -> tuple[float, str]:
    most = max(LEAST_NODES_ADDED, seen.existing)
    return most, f"the greater of {LEAST_NODES_ADDED} and the {seen.existing} there are"


def _half_of_the_bill(seen: Foreseen) -> tuple[float, str]:
    most = max(LEAST_USD_H_ADDED, seen.now.usd_h / 2)
    return most, f"the greater of {LEAST_USD_H_ADDED:.0f} USD/h and half of the present {seen.now.usd_h:.2f} USD/h"


def _quarter_of_gangs(seen: Foreseen) -> tuple[float, str]:
    most = max(LEAST_GANGS_EVICTED, ceil(seen.running / 4))
    return most, f"the greater of {LEAST_GANGS_EVICTED} and a quarter of the {seen.running} that run"


_COUNTED: Final[Sequence[_CountedRail | _PercentRail]] = (
    _CountedRail("maxNodesRemoved", lambda it: it.nodes_removed, ("removes", "machines"), _unbounded),
    _PercentRail(),
    _CountedRail("maxNodesAdded", lambda it: it.nodes_added, ("adds", "machines"), _as_many_nodes),
    _CountedRail("maxUsdPerHourAdded", lambda it: it.usd_h_added, ("adds", "USD/h"), _half_of_the_bill, money=True),
    _CountedRail("maxGangsEvicted", lambda it: it.gangs_evicted, ("stops", "gangs"), _quarter_of_gangs),
)
"""In the order in which they are told."""
