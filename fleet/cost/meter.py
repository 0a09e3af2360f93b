"""The meter remembers what was seen of every machine since the last hour that was cut, and cuts hours that are over."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from fleet.cost.lost_work import lost_since_s
from fleet.cost.machine_use import Commitment, Holding, MachineUse
from fleet.cost.open_hours import MeterState, SpotSilence, priced_segments, silences
from fleet.cost.records import AHEAD_S, ENDED, HOUR_S, LostWork, MachineSpan, Segment, StartRecord
from fleet.cost.silence import Silence, silent_segments
from fleet.markets import PastPrice
from fleet.snapshot import CapacityPool, Gang, GangState, Snapshot
from model.index import differing

SETTLED_S: Final = 300.0
"""An hour is cut so long after its end: by then the cloud has told of all that ended within it."""
MOST_SEGMENTS: Final = 240
CROWDED_S: Final = 30.0
"""Of a machine with so many changes that are not cut yet, two within this time count as one. With four times as many,
after days in which nothing could be written, every further change takes the place of the last: time and money stay
right, who had them does not."""
MOST_STARTS: Final = 50_000
"""Starts that are not written yet; of more the oldest are dropped."""

_MachineEnd = tuple[MachineUse, float]
"""A machine, and when it ended (epoch seconds)."""


@dataclass(slots=True)
class Meter:
    """A `Meter` is looked through time and again; it hands out the records of hours that are over, each once.

    What it holds is all that is needed to go on after a crash (`agent.ledger` keeps it).
    """

    cluster: str
    commitments: tuple[Commitment, ...] = ()
    """What is paid for reservations, whether machines run in them or not."""
    spans: dict[str, MachineSpan] = field(default_factory=dict)
    until_s: float = 0.0
    """When it looked last (epoch seconds); 0 = never."""
    cut_until_s: float = 0.0
    """The end of the last hour that was cut (epoch seconds)."""
    running: dict[str, float] = field(default_factory=dict)
    """uid of each gang that runs -> when it was admitted."""
    starts: tuple[StartRecord, ...] = ()
    """Of hours that are not cut yet."""
    noted: int = 0
    """How many losses, starts and ends it has noted: nobody could tell of these after a crash."""
    _seen: Mapping[str, MachineUse] = field(default_factory=dict)
    _gangs: Mapping[str, Gang] = field(default_factory=dict)
    _leaving: Mapping[str, str] = field(default_factory=dict)
    """Instance id -> why it is given back, until it is seen ended: its claim may be gone before."""
    _bereft: dict[str, float] = field(default_factory=dict)
    """Subject -> when the first of its machines ended while nobody looked: it may still be told to stop, for that."""
    _settled_s: float = 0.0
    """Until when that is waited for, and no hour is cut."""
    _silent: bool = False
    """Whether some spot price may still be to be read, so that who asks need not look through all machines."""

    def look(
        self,
        snapshot: Snapshot,
        used: Mapping[str, MachineUse],
        team_of: Callable[[str, str], str | None] = lambda _namespace, _queue: None,
        ended: Iterable[_MachineEnd] = (),
    ) -> None:
        """Take note of what is different from the last look.

        A clock that went back changes nothing until it is past; one that had been more than `AHEAD_S` ahead is not
        waited for.

        `used` are the machines that bill; `team_of` says whose work of a namespace and queue is. `ended` are machines
        that ended since the last look, and when: those that came meanwhile are not known otherwise.
        """
        now_s = snapshot.now_s
        if now_s < self.until_s - AHEAD_S:
            self.restore(self.state().up_to(now_s))
        if now_s < self.until_s:
            return
        self._leaving = {**self._leaving, **_leaving(snapshot)}
        silence = Silence(self.until_s, now_s, snapshot)
        self._silent |= silence.unseen
        stopped = _stopped_gangs(self._gangs or self._ran(snapshot.gangs), snapshot.gangs)
        held = [*self._held(stopped)] if stopped else ()
        if not self.cut_until_s:
            self.cut_until_s = now_s // HOUR_S * HOUR_S
        self._bill(used, silence, {it.machine: (it, at_s) for it, at_s in ended if at_s > self.cut_until_s})
        for key, holding in held:
            self._lost(key, holding, stopped[holding.subject], snapshot.gangs, now_s)
        self._note_starts(snapshot.gangs, now_s, team_of)
        if now_s >= self._settled_s:
            self._bereft.clear()
        self._seen, self._gangs, self.until_s = used, snapshot.gangs, now_s
        stay = {it.instance_id for it in snapshot.claims.values() if not it.disruption and not it.deleting}
        self._leaving = {key: why for key, why in self._leaving.items() if key in used and key not in stay}

    def _bill(self, used: Mapping[str, MachineUse], silence: Silence, told: Mapping[str, _MachineEnd]) -> None:
        """Take note of machines that are used otherwise than at the last look, that came and that went."""
        for key in differing(self._seen, used) if self._seen and not silence.unseen else sorted({*self.spans, *used}):
            if key in used:
                self._runs(key, used[key], silence)
            elif key in self.spans and self.spans[key].ended_s is None:
                self.spans[key] = self._ended(key, silence, told.get(key))
                self.noted += 1
        for key in sorted(told.keys() - self.spans.keys()):
            use, ended_s = told[key]
            begin_s = max(self.cut_until_s, min(use.launched_s, silence.end_s))
            ended_s = max(begin_s, min(ended_s, silence.end_s))
            segments = _first(use, silence._replace(begin_s=begin_s, end_s=ended_s))
            self.spans[key] = MachineSpan(segments, ended_s, ENDED)
            self._silent = True

    def returned(self, instances: Iterable[str], reason: str) -> None:
        """Take note that machines are being given back, and why."""
        self._leaving = {**self._leaving, **dict.fromkeys(instances, reason)}

    def _runs(self, key: str, use: MachineUse, silence: Silence) -> None:
        span, now_s = self.spans.get(key), silence.end_s
        if span is None:
            before = silence._replace(begin_s=max(self.cut_until_s, min(use.launched_s, now_s)))
            self.spans[key] = MachineSpan(_first(use, before))
            self._silent |= before.unseen
            return
        segments = self._from_launch(span.segments, use)
        if silence.unseen:
            segments += tuple(silent_segments(silence, segments[-1].use, use))
        self.spans[key] = replace(span, segments=_with_use(segments, use, now_s), ended_s=None, ended="")

    def _from_launch(self, segments: tuple[Segment, ...], use: MachineUse) -> tuple[Segment, ...]:
        """Returns the segments from when the cloud says it was launched: the agent hears of that a little later."""
        first = segments[0]
        if use.launched_s < first.begin_s and first.begin_s > self.cut_until_s:
            return (first._replace(begin_s=max(self.cut_until_s, use.launched_s)), *segments[1:])
        return segments

    def _ended(self, key: str, silence: Silence, told: _MachineEnd | None) -> MachineSpan:
        """Returns a machine's span closed: when the cloud says, else now, or when it was last seen before a silence."""
        span, instance = self.spans[key], silence.after.instances.get(key)
        told_s = (instance.ended_at_s if instance is not None else 0.0) or (told[1] if told is not None else 0.0)
        ended_s = min(told_s or (self.until_s if silence.unseen else silence.end_s), silence.end_s)
        segments = span.segments
        if silence.unseen:
            self._note_bereft(segments[-1].use.holdings, ended_s, silence)
        if silence.unseen and ended_s > self.until_s:
            segments += tuple(silent_segments(silence, segments[-1].use, None))
        return replace(span, segments=segments, ended_s=ended_s, ended=self._leaving.get(key, ENDED))

    def _note_bereft(self, holdings: Iterable[Holding], ended_s: float, silence: Silence) -> None:
        for it in holdings:
            if silence.held_until_s(it) is not None:
                self._settled_s = silence.end_s + SETTLED_S
                self._bereft[it.subject] = min(ended_s, self._bereft.get(it.subject, inf))

    def _ran(self, gangs: Mapping[str, Gang]) -> Mapping[str, Gang]:
        """Returns the gangs that ran when somebody looked last, as they were then: all that is known after a crash."""
        there = {uid: (gangs[uid], at_s) for uid, at_s in self.running.items() if uid in gangs}
        return {uid: replace(it, state=GangState.ADMITTED, admitted_at_s=at_s) for uid, (it, at_s) in there.items()}

    def _held(self, stopped: Mapping[str, Gang]) -> Iterator[tuple[str, Holding]]:
        """Yields what stopped gangs had of machines when these were looked at last, or until they ended.

        They lose there what they did since the last checkpoint.
        """
        for key, span in sorted(self.spans.items()):
            found = _holdings_at_end(span) if span.ended_s is not None else span.segments[-1].use.holdings
            for it in found:
                run = stopped.get(it.subject)
                if run is not None and (span.ended_s is None or it.of_run(run.admitted_at_s)):
                    yield key, it

    def _note_starts(self, gangs: Mapping[str, Gang], now_s: float, team_of: Callable[[str, str], str | None]) -> None:
        """Gangs whose pods have all become ready have started; those that ran before the first look are not told of."""
        came = []
        for uid in differing(self._gangs, gangs) if self._gangs else sorted({*self.running, *gangs}):
            gang = gangs.get(uid)
            if gang is None or gang.state is not GangState.ADMITTED:
                self.running.pop(uid, None)
            elif gang.pods_ready and self.running.get(uid) != gang.admitted_at_s:
                self.running[uid] = gang.admitted_at_s
                came.append(_start(self.cluster, gang, now_s, team_of(gang.namespace, gang.queue) or ""))
        if self.until_s:
            self.starts = (*self.starts, *came)[-MOST_STARTS:] if came else self.starts
            self.noted += len(came)

    def _lost(self, key: str, holding: Holding, stopped: Gang, gangs: Mapping[str, Gang], now_s: float) -> None:
        span, now = self.spans.get(key), gangs.get(stopped.uid)
        if span is None:
            return
        ends = [
            now_s,
            self._bereft.get(stopped.uid, inf),
            *([now.admitted_at_s] if now is not None and now.admitted_at_s > stopped.admitted_at_s else []),
        ]
        at_s = min(*ends, now_s if span.ended_s is None else span.ended_s)
        since_s = lost_since_s(stopped, at_s)
        if at_s > since_s:
            self.spans[key] = replace(span, lost=(*span.lost, LostWork(at_s, since_s, holding)))
            self.noted += 1

    def due(self, now_s: float) -> float | None:
        """Returns the begin of the first hour that is over, settled and not cut; None where none is.

        An hour whose spot prices are still to be read is not.
        """
        end_s = self.cut_until_s + HOUR_S
        if not self.until_s or max(end_s + SETTLED_S, self._settled_s) > min(now_s, self.until_s):
            return None
        silence = self.silence()
        return self.cut_until_s if silence is None or silence.begin_s >= end_s else None

    def silence(self) -> SpotSilence | None:
        """Returns the time in which nobody looked and whose spot prices are still to be read; None where none is."""
        if not self._silent:
            return None
        found = {key: times for key, it in self.spans.items() if (times := silences(it, self.until_s))}
        times = [time for each in found.values() for time in each]
        self._silent = bool(times)
        if not times:
            return None
        pools = frozenset(self.spans[key].segments[0].use.where for key in found)
        return SpotSilence(pools, min(begin_s for begin_s, _ in times), max(end_s for _, end_s in times))

    def priced(self, silence: SpotSilence, history: Mapping[CapacityPool, Sequence[PastPrice]]) -> None:
        """Take in what spot machines cost in a silence; what it says nothing of stays at the price from before."""
        for key, span in self.spans.items():
            if silences(span, self.until_s):
                known = history.get(span.segments[0].use.where, ())
                self.spans[key] = replace(span, segments=priced_segments(span.segments, known, silence.end_s))

    def done(self, hour_s: float) -> None:
        """Forget what is only needed for an hour that was due, and is in the ledger now."""
        self.cut_until_s = hour_s + HOUR_S
        self.starts = tuple(it for it in self.starts if it.running_s >= self.cut_until_s)
        self._forget_before(self.cut_until_s)

    def _forget_before(self, at_s: float) -> None:
        kept = {}
        for key, span in self.spans.items():
            if span.ended_s is not None and span.ended_s <= at_s:
                continue
            first = max((n for n, it in enumerate(span.segments) if it.begin_s <= at_s), default=0)
            lost = tuple(it for it in span.lost if it.at_s >= at_s)
            kept[key] = replace(span, segments=span.segments[first:], lost=lost)
        self.spans = kept

    def state(self) -> MeterState:
        """Returns all that is needed to go on: who changes nothing may read it in another thread."""
        return MeterState(
            self.cluster,
            dict(self.spans),
            self.until_s,
            self.cut_until_s,
            dict(self.running),
            self.starts,
            self.commitments,
            dict(self._bereft),
            self._settled_s,
        )

    def restore(self, state: MeterState) -> None:
        """Go on from there."""
        self.spans, self.until_s, self.cut_until_s = dict(state.spans), state.until_s, state.cut_until_s
        self.running, self.starts, self._silent = dict(state.running), state.starts, True
        self._bereft, self._settled_s = dict(state.bereft), state.settled_s


def _leaving(snapshot: Snapshot) -> Mapping[str, str]:
    """Returns instance id -> why it is given back."""
    return {it.instance_id: it.disruption.reason for it in snapshot.claims.values() if it.disruption}


def _with_use(segments: tuple[Segment, ...], use: MachineUse, now_s: float) -> tuple[Segment, ...]:
    """Returns the segments with what a machine is used for from now on."""
    last = segments[-1]
    if last.use == use:
        return segments
    soon, count = now_s - last.begin_s < CROWDED_S, len(segments)
    crowded = count >= 4 * MOST_SEGMENTS or (count >= MOST_SEGMENTS and soon)
    return (*segments[:-1], Segment(last.begin_s, use)) if crowded else (*segments, Segment(now_s, use))


def _first(use: MachineUse, silence: Silence) -> tuple[Segment, ...]:
    """Returns the segments of a machine that is seen for the first time: nobody looked since its launch."""
    if not silence.unseen:
        return (Segment(silence.begin_s, use),)
    return (*silent_segments(silence, use, use), Segment(silence.end_s, use))


def _holdings_at_end(span: MachineSpan) -> tuple[Holding, ...]:
    """Returns who was on a machine that has ended, as was seen last: of a silence before its end nobody may know."""
    return next((it.use.holdings for it in reversed(span.segments) if it.use.holdings), ())


def _start(cluster: str, gang: Gang, now_s: float, team: str) -> StartRecord:
    return StartRecord(
        cluster,
        gang.uid,
        gang.admitted_at_s,
        max(now_s, gang.admitted_at_s),
        gang.created_at_s,
        gang.quota_reserved_at_s,
        gang.job.name,
        gang.namespace,
        gang.queue,
        team,
        again=gang.ran_before_s > 0,
    )


def _stopped_gangs(before: Mapping[str, Gang], now: Mapping[str, Gang]) -> Mapping[str, Gang]:
    """Returns the gangs that ran before and are stopped now, as they were, by uid."""
    return {uid: before[uid] for uid in differing(before, now) if uid in before and _stopped(before[uid], now.get(uid))}


def _stopped(before: Gang, now: Gang | None) -> bool:
    """Returns whether a gang that ran is stopped before its end; one that is gone altogether was deleted."""
    if before.state is not GangState.ADMITTED or now is None:
        return False
    if now.state is GangState.ADMITTED:
        return now.admitted_at_s > before.admitted_at_s
    evicted = now.eviction is not None and abs(now.eviction.admitted_at_s - before.admitted_at_s) < 1.0
    return now.state is GangState.EVICTING or (evicted and now.state is not GangState.FINISHED)
