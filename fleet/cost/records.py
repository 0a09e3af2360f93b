"""Records of the ledger: what each subject took of each machine in each hour, and what that costs.

An hour (UTC) of a machine is cut into records once it is over. They follow from the segments seen of it alone, so that
whoever cuts the same segments gets the same records, and whoever repeats it the same keys.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final, NamedTuple

from fleet.cost.allocation import MICRO, split
from fleet.cost.machine_use import UNOBSERVED, Holding, MachineUse

HOUR_S: Final = 3600.0
DAY_S: Final = 86_400.0
AHEAD_S: Final = HOUR_S
"""Who has seen what comes later than in so long had a clock that was ahead; agents' clocks differ by less."""
ENDED: Final = "Ended"
"""Why a machine ended that was not being given back."""


class RecordKey(NamedTuple):
    """A `RecordKey` is what no two records share."""

    cluster: str
    machine: str
    hour_s: float
    subject: str
    team: str
    borrowed: bool


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """A `LedgerRecord` is what one subject took of one machine within one hour. It is never changed.

    The costs of all records of a machine's hour are together what the machine cost, to the micro-USD.
    """

    cluster: str
    machine: str
    hour_s: float
    """Begin of the hour (epoch seconds)."""
    subject: str
    """uid of a gang's job, owner of ordinary pods, or one of `NOBODY`."""
    team: str
    borrowed: bool
    name: str
    namespace: str
    queue: str
    user: str
    node_pool: str
    instance_type: str
    zone: str
    capacity_type: str
    reservation: str
    gpu: str
    devices: str
    held_s: float
    """Seconds of the hour in which it had some part of the machine."""
    gpu_s: float
    """GPU seconds: its part of the machine's GPUs, in time."""
    cost_micro_usd: int
    lost_s: float
    """Seconds of its work that were lost here in this hour, since the last checkpoint or the start."""
    lost_micro_usd: int
    """What its part of the machine had cost in these seconds; paid already, and not part of the cost."""
    usd_h: float
    """What the whole machine cost an hour, on average."""
    price_source: str
    priced_at_s: float
    ended: str = ""
    """Why the machine ended in this hour; empty = it did not."""

    @property
    def key(self) -> RecordKey:
        """Returns what no other record has."""
        return RecordKey(self.cluster, self.machine, self.hour_s, self.subject, self.team, self.borrowed)


class StartKey(NamedTuple):
    """A `StartKey` is what no two starts share."""

    cluster: str
    uid: str
    admitted_s: float


@dataclass(frozen=True, slots=True)
class StartRecord:
    """A `StartRecord` is how a gang came to run: when it came, got quota, was admitted, and had all its pods ready."""

    cluster: str
    uid: str
    admitted_s: float
    running_s: float
    """When all of its pods were seen ready (epoch seconds, as all times)."""
    submitted_s: float
    reserved_s: float
    """When quota was reserved for it for the last time."""
    name: str
    namespace: str
    queue: str
    team: str
    again: bool
    """Whether it had run before: then it waited for something else than its turn."""

    @property
    def key(self) -> StartKey:
        """Returns what no other start has."""
        return StartKey(self.cluster, self.uid, self.admitted_s)


class Segment(NamedTuple):
    """A `Segment` is how a machine was used from `begin_s` (epoch seconds) until the next segment begins."""

    begin_s: float
    use: MachineUse
    awaits_price: bool = False
    """Whether nobody looked, so that its spot price is still to be read from the history; until then, that before."""


class LostWork(NamedTuple):
    """A `LostWork` is a gang's part of a machine whose work since `since_s` was lost at `at_s` (epoch seconds)."""

    at_s: float
    since_s: float
    holding: Holding


@dataclass(frozen=True, slots=True)
class MachineSpan:
    """A `MachineSpan` is what was seen of one machine since the last hour that was cut, in order."""

    segments: tuple[Segment, ...]
    ended_s: float | None = None
    """When it stopped to bill (epoch seconds); None = it runs."""
    ended: str = ""
    """Why it did: the reason for which it was given back, or `ENDED`."""
    lost: tuple[LostWork, ...] = ()


@dataclass(slots=True)
class _Sum:
    """What one subject has had so far."""

    holding: Holding
    use: MachineUse
    held_s: float = 0.0
    gpu_s: float = 0.0
    weight: float = 0.0
    lost_s: float = 0.0
    lost_usd: float = 0.0


@dataclass(slots=True)
class _Cut:
    """An hour of a machine while it is summed up."""

    sums: dict[tuple[str, str, bool], _Sum] = field(default_factory=dict)
    usd_s: float = 0.0
    lasted_s: float = 0.0

    @property
    def usd_h(self) -> float:
        return self.usd_s / self.lasted_s if self.lasted_s else 0.0

    def add(self, use: MachineUse, seconds: float) -> None:
        """Adds seconds of a use: to each holding its share, the rest to nobody. Shares above 1 in sum become 1."""
        self.usd_s += use.usd_h * seconds
        self.lasted_s += seconds
        scale = max(1.0, sum(it.share for it in use.holdings))
        taken = 0.0
        for holding in use.holdings:
            taken += holding.share / scale
            self._add(holding, use, holding.share / scale, seconds)
        if (left := 1.0 - taken) > 1e-9:
            self._add(_nobody(use.rest), use, left, seconds)

    def _add(self, holding: Holding, use: MachineUse, share: float, seconds: float) -> None:
        it = self.of(holding, use)
        it.holding, it.use = holding, it.use if _silent(it.use) else use
        it.held_s += seconds
        it.gpu_s += share * use.gpus * seconds
        it.weight += share * use.usd_h * seconds

    def lose(self, lost: LostWork, use: MachineUse) -> None:
        it, seconds = self.of(lost.holding, use), lost.at_s - lost.since_s
        it.lost_s += seconds
        it.lost_usd += seconds * lost.holding.share * use.usd_h / 3600

    def of(self, holding: Holding, use: MachineUse) -> _Sum:
        key = holding.subject, holding.team, holding.borrowed
        return self.sums.setdefault(key, _Sum(holding, use))


def _nobody(why: str) -> Holding:
    return Holding(why, why, "", "", "", "", borrowed=False, share=0.0, devices="", since_s=0.0)


def cut_hour(cluster: str, span: MachineSpan, hour_s: float, seen_s: float = inf) -> Sequence[LedgerRecord]:
    """Returns the records of one hour of a machine, in order of key; none where it did not bill in that hour.

    `seen_s` is up to when the machine was seen, where the hour is not over.
    """
    end_s = hour_s + HOUR_S
    found = cut_time(cluster, span, hour_s, min(end_s, seen_s, inf if span.ended_s is None else span.ended_s))
    if span.ended_s is None or not hour_s < span.ended_s <= end_s:
        return found
    return [replace(record, ended=span.ended) for record in found]


def cut_time(cluster: str, span: MachineSpan, begin_s: float, until_s: float) -> Sequence[LedgerRecord]:
    """Returns the records of a machine for `[begin_s, until_s)`, as of one hour; with what was lost in that hour."""
    cut = _Cut()
    for segment, end_s in with_ends(span.segments):
        first_s = max(begin_s, segment.begin_s)
        last_s = min(until_s, end_s)
        if last_s > first_s:
            cut.add(segment.use, last_s - first_s)
    for lost in [it for it in span.lost if begin_s <= it.at_s < begin_s + HOUR_S]:
        cut.lose(lost, span.segments[-1].use)
    keys = sorted(cut.sums)
    costs = split(round(cut.usd_s * MICRO / 3600), [cut.sums[key].weight for key in keys])
    usd_h = round(cut.usd_h, 6)
    return [_record(cluster, begin_s, cut.sums[key], cost, usd_h) for key, cost in zip(keys, costs, strict=True)]


def with_ends(segments: Sequence[Segment]) -> Iterator[tuple[Segment, float]]:
    """Yields each segment and when it ends (epoch seconds); the last one does not."""
    for n, segment in enumerate(segments):
        yield segment, segments[n + 1].begin_s if n + 1 < len(segments) else inf


def _record(cluster: str, hour_s: float, summed: _Sum, cost: int, usd_h: float) -> LedgerRecord:
    holding, use, where = summed.holding, summed.use, summed.use.where
    return LedgerRecord(
        cluster,
        use.machine,
        hour_s,
        holding.subject,
        holding.team,
        holding.borrowed,
        holding.name,
        holding.namespace,
        holding.queue,
        holding.user,
        use.node_pool,
        where.instance_type,
        where.zone,
        where.capacity_type,
        where.reservation,
        use.gpu,
        holding.devices,
        round(summed.held_s, 3),
        round(summed.gpu_s, 3),
        cost,
        round(summed.lost_s, 3),
        round(summed.lost_usd * MICRO),
        usd_h,
        use.priced.source,
        use.priced.at_s,
    )


def _silent(use: MachineUse) -> bool:
    """Returns whether nobody looked, and its spot price was not known at the time: reports tell the source of that."""
    return use.rest == UNOBSERVED and use.spot_part > 0


def by_machine_hour(records: Iterable[LedgerRecord]) -> Mapping[tuple[str, str, float], list[LedgerRecord]]:
    """Returns (cluster, machine, hour) -> its records: the unit in which ledgers take records, all or none."""
    found: dict[tuple[str, str, float], list[LedgerRecord]] = {}
    for record in records:
        found.setdefault((record.cluster, record.machine, record.hour_s), []).append(record)
    return found
