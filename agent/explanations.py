"""The keeper of explanations: what takes too long for an answer is found in idle time, off the brain's thread.

The brain's thread pays for two assignments a turn, and an append for each gang that ends or starts. One thread of its
own, which takes a small share of the process's time (`TimeShare`), plays the forecast, tries advice gang by gang, reads
the ledger, and writes the short form into the status of Workloads.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import log2
from pathlib import Path
from time import thread_time
from typing import Final, NamedTuple

import structlog

from agent.config import Settings
from agent.inbox import Done, Failed
from agent.ledger_settings import open_ledger
from agent.record import ran_s
from agent.review.world import LastPass
from agent.spent import PastMonth, Spending
from agent.watch import Watcher
from agent.web.time_share import TimeShare
from fleet.actions import CloseGang, SaveGang
from fleet.cost.uses import CostTerms, subject_usd_h, uses
from fleet.explain.advice import Advice, Adviser
from fleet.explain.gang import GangExplanation, explain_gang
from fleet.explain.gang_facts import StartEstimate, ToldLately
from fleet.explain.quota_holders import ExpectedEnd
from fleet.plan.forecast_correction import ForecastCorrection
from fleet.plan.past_arrivals import PastArrivals
from fleet.plan.start_forecast import StartForecaster
from fleet.replay.run_times import EndedRun, RunTimes, ended_run
from fleet.scheduling.queue_order import places_in_queues
from fleet.snapshot import Gang, GangState, Snapshot
from fleet.snapshot.elastic_parts import pods_in
from model.fleet import Fleet
from model.index import Index
from providers.kube.errors import KubeError, NotFound
from providers.kube.objects.explanations import EXPLAINED_BY, explanation_status
from providers.kube.objects.paths import WORKLOADS
from providers.kube.transport import KubeTransport
from providers.traces import ReadTrace, TraceError, read_trace

log = structlog.get_logger(__name__)

SHARE: Final = 0.05
"""Part of the process's time that forecasts and advice may take in the long run."""
REST_S: Final = 0.5
FORECAST_EVERY_S: Final = 60.0
"""From one forecast to the next, at least."""
ADVICE_HOLDS_S: Final = 600.0
"""Advice is tried anew after this, or when the gang waits for another reason."""
ASKED_HOLDS_S: Final = 30.0
"""The same for a gang that somebody has just asked for."""
SPENT_EVERY_S: Final = 60.0
FAILED_RESTS_S: Final = 60.0
"""What has failed is not tried again before: it would keep all else from its turn."""
KEPT_MOST: Final = 20_000
"""Gangs of which advice is kept; of more the longest untouched is forgotten."""
WRITES_S, WRITES_AT_ONCE = 5.0, 20.0
"""Statuses that are written a second in the long run, and at once."""
LOOKED_AT_MOST: Final = 200
"""Gangs that one unit of work looks at for a status to write."""
WRITTEN_AGAIN_S, WRITTEN_FIRST_S = 600.0, 60.0
"""A status that differs in what changes all the time only (costs, run times) is written again after this at most.

Before that it is written when it has become twice as old as it was: of a young gang such numbers change most.
"""

WriteShort = Callable[[Gang, GangExplanation | None], None]
"""Writes the short form into the status of a gang's Workload; None takes it away."""


class _KeptAdvice(NamedTuple):
    """Advice for one gang, for which reason it waited then, and when."""

    why: tuple[str, str]
    advice: tuple[Advice, ...]
    at_s: float


@dataclass(frozen=True, slots=True)
class _Forecast:
    """The forecast that counts, corrected."""

    estimates: Mapping[str, StartEstimate]
    ends: Mapping[str, ExpectedEnd]
    at_s: float


class ExplanationKeeper(Watcher):
    """Keeps what was found of every gang; `lately` and `explain` may be asked by any thread."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        terms: CostTerms,
        *,
        spent: Spending | None = None,
        write: WriteShort | None = None,
        leading: Callable[[], bool] = lambda: True,
        known: Iterable[EndedRun] = (),
        failed: Callable[[str], object] = lambda _step: None,
    ) -> None:
        """`failed` hears which step has failed."""
        self._monotonic, self._terms, self._count_failure = monotonic, terms, failed
        self._spent, self._write, self._leading = spent, write, leading
        self._share = TimeShare(monotonic, SHARE)
        self._pace = TimeShare(monotonic, WRITES_S, WRITES_AT_ONCE)
        self._index = Index()
        self._seen: LastPass | None = None
        self._news: deque[EndedRun | tuple[str, float]] = deque(maxlen=10_000)
        self._asked: deque[str] = deque(maxlen=256)
        self.times = RunTimes()
        self._arrivals = PastArrivals()
        for ended in known:
            self.times.learn(ended)
            self._arrivals.learn(ended)
        self._correction = ForecastCorrection()
        self._forecaster: tuple[StartForecaster, Snapshot] | None = None
        self._forecast = _Forecast({}, {}, float("-inf"))
        self._adviser: tuple[Gang, Adviser] | None = None
        self._kept: OrderedDict[str, _KeptAdvice] = OrderedDict()
        self._spent_at_s, self._looks_back = float("-inf"), False
        """When all that is new in the ledger had been read, and whether the next turn goes to its older days."""
        self._written: dict[str, tuple[object, float]] = {}
        self._round: list[str] = []
        """uids that are still to be looked at for a status that is out of date."""
        self._places: Mapping[str, int] = {}
        self._failed: dict[str, tuple[str, float]] = {}
        """Steps that failed when they were last tried: on what, and until when they rest."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="explanations", daemon=True)

    # -- on the brain's thread --------------------------------------------------------------------------------------

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Swap what is explained; views are kept apart from those of the brain."""
        self._seen = LastPass(fleet, replace(snapshot, index=self._index))

    def ended(self, event: Done | Failed, now_s: float) -> None:
        """Note gangs that have started or ended."""
        if not isinstance(event, Done):
            return
        match event.action:
            case SaveGang(gang=gang) if gang.state is GangState.FINISHED:
                self._news.append(EndedRun(gang, ran_s(gang, now_s)))
            case SaveGang(gang=gang) if gang.state is GangState.ADMITTED:
                self._news.append((gang.uid, gang.admitted_at_s))
            case CloseGang(gang=gang) if gang.state is GangState.ADMITTED:
                self._news.append(EndedRun(gang, ran_s(gang, now_s)))

    # -- on any thread ----------------------------------------------------------------------------------------------

    def explain(self, fleet: Fleet, snapshot: Snapshot, gang: Gang) -> GangExplanation:
        """Returns the explanation of a gang in a picture that somebody looks at; what is missing is found next."""
        kept = self._kept.get(gang.uid)
        if gang.state is GangState.PENDING and (kept is None or snapshot.now_s - kept.at_s > ASKED_HOLDS_S):
            self._asked.append(gang.uid)
        return explain_gang(fleet, snapshot, gang, self.lately(fleet, snapshot, gang))

    def lately(self, fleet: Fleet, snapshot: Snapshot, gang: Gang) -> ToldLately:
        """Returns what was found of a gang in idle time."""
        kept, forecast = self._kept.get(gang.uid), self._forecast
        if kept is not None and kept.why != _why(gang):
            kept = None
        start = forecast.estimates.get(gang.uid)
        if start is None and self.trouble:
            start = StartEstimate(snapshot.now_s, why_unknown=f"the last forecast failed: {self.trouble}")
        rates = subject_usd_h(snapshot.index, uses(fleet, snapshot, self._terms))
        return ToldLately(
            forecast.ends,
            start,
            kept.advice if kept is not None else None,
            kept.at_s if kept is not None else 0.0,
            self._spent.usd(gang.uid) if self._spent is not None else None,
            self._spent.known_until_s if self._spent is not None else 0.0,
            rates.get(gang.uid, 0.0),
        )

    def months(self) -> tuple[PastMonth, ...]:
        """Returns what months came to by the ledger, as far as it has been read; none without a ledger."""
        return self._spent.months() if self._spent is not None else ()

    # -- on its own thread ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def close(self) -> None:
        """End after the unit of work that is under way."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        if self._spent is not None and not self._thread.is_alive():
            self._spent.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            busy = self.work()
            self._stopping.wait(max(0.0 if busy else REST_S, self._share.wait_s()))

    def work(self) -> bool:
        """Does one unit of what is to be done, if the share of time allows; returns whether there was any."""
        if self._share.wait_s() > 0 or self._seen is None or not self._leading():
            return False
        began_s = thread_time()
        try:
            return any(self._fenced(step, self._seen) for step in self._steps())
        finally:
            self._share.spend(thread_time() - began_s)

    @property
    def trouble(self) -> str:
        """What a step failed on when it was last tried; empty = none did."""
        return next((words for words, _ in self._failed.values()), "")

    def _fenced(self, step: Callable[[LastPass], bool], seen: LastPass) -> bool:
        """Returns whether a step had anything to do. One that fails rests, and the others go on."""
        name, now_s = step.__name__, self._monotonic()
        if now_s < self._failed.get(name, ("", 0.0))[1]:
            return False
        try:
            done = step(seen)
        except Exception as error:
            log.exception("explanation_failed", step=name)
            self._count_failure(name.removeprefix("_"))
            self._failed[name] = f"{type(error).__name__}: {error}", now_s + FAILED_RESTS_S
            self._forecaster = self._adviser = None
            return True
        self._failed.pop(name, None)
        return done

    def _steps(self) -> Iterator[Callable[[LastPass], bool]]:
        yield self._learn
        yield self._advise_asked
        yield self._look_ahead
        yield self._read_spent
        yield self._advise
        yield self._tell

    def _learn(self, seen: LastPass) -> bool:
        """Takes in who started and ended, and judges what was told of them."""
        started: dict[str, float] = {}
        gone: set[str] = set()
        self._arrivals.note((), seen.snapshot.now_s)
        while self._news:
            it = self._news.popleft()
            if isinstance(it, EndedRun):
                self.times.learn(it)
                self._arrivals.learn(it)
                gone.add(it.gang.uid)
            else:
                started[it[0]] = it[1]
        self._correction.judge(started, frozenset(gone), seen.snapshot.now_s)
        return False

    def _look_ahead(self, seen: LastPass) -> bool:
        """Plays one future of the forecast under way, or begins the next one."""
        snapshot = seen.snapshot
        if self._forecaster is None:
            waiting = frozenset(uid for uid, gang in snapshot.gangs.items() if gang.state in _WAITING)
            if not waiting or snapshot.now_s < self._forecast.at_s + FORECAST_EVERY_S:
                return False
            self._arrivals.note(snapshot.gangs.values(), snapshot.now_s)
            apart = replace(snapshot, index=Index())
            self._forecaster = StartForecaster(seen.fleet, apart, self.times, self._arrivals), snapshot
            return True
        forecaster, of = self._forecaster
        if forecaster.left:
            forecaster.step()
            return True
        forecast = forecaster.forecast
        told = {uid: self._correction.told(uid, of.gangs[uid].queue, forecast.estimate(uid)) for uid in forecast.starts}
        self._forecast, self._forecaster = _Forecast(told, forecaster.ends, of.now_s), None
        return True

    def _advise_asked(self, seen: LastPass) -> bool:
        while self._adviser is None and self._asked:
            gang = seen.snapshot.gangs.get(self._asked.popleft())
            kept = self._kept.get(gang.uid) if gang is not None else None
            if gang is not None and gang.state is GangState.PENDING and _stale(kept, gang, seen, ASKED_HOLDS_S):
                self._adviser = gang, Adviser(seen.fleet, seen.snapshot, gang)
                return True
        return self._step_adviser(seen)

    def _advise(self, seen: LastPass) -> bool:
        if self._adviser is None:
            pending = (gang for gang in seen.snapshot.gangs.values() if gang.state is GangState.PENDING)
            due = [gang for gang in pending if _stale(self._kept.get(gang.uid), gang, seen, ADVICE_HOLDS_S)]
            if not due:
                return False
            gang = min(due, key=lambda it: (self._kept[it.uid].at_s if it.uid in self._kept else 0.0, it.created_at_s))
            self._adviser = gang, Adviser(seen.fleet, seen.snapshot, gang)
            return True
        return self._step_adviser(seen)

    def _step_adviser(self, seen: LastPass) -> bool:
        if self._adviser is None:
            return False
        gang, adviser = self._adviser
        if adviser.left:
            adviser.step()
            return True
        self._kept[gang.uid] = _KeptAdvice(_why(gang), adviser.advice, seen.snapshot.now_s)
        self._kept.move_to_end(gang.uid)
        while len(self._kept) > KEPT_MOST:
            self._kept.popitem(last=False)
        self._adviser = None
        return True

    def _read_spent(self, seen: LastPass) -> bool:
        """Reads a day of the ledger, what is new first; every other turn is left to the other steps."""
        now_s = self._monotonic()
        self._looks_back = not self._looks_back
        if self._spent is None or not self._looks_back or now_s < self._spent_at_s + SPENT_EVERY_S:
            return False
        if not self._spent.read(seen.snapshot):
            self._spent_at_s = now_s
        return True

    def _tell(self, seen: LastPass) -> bool:
        """Writes the short form of the next gang that it has changed of."""
        if self._write is None or self._pace.wait_s() > 0:
            return False
        gangs = seen.snapshot.gangs
        if not self._round:
            self._round = list(gangs)
            self._places = places_in_queues(*seen)
            self._written = {uid: it for uid, it in self._written.items() if uid in gangs}
        for _ in range(min(LOOKED_AT_MOST, len(self._round))):
            gang = gangs.get(self._round.pop())
            if gang is not None and self._is_news(seen.snapshot, gang):
                return self._tell_of(seen, gang)
        return False

    def _is_news(self, snapshot: Snapshot, gang: Gang) -> bool:
        """Returns whether what a Workload says is another thing by now, or too old."""
        if not gang.workload_uid:
            return False
        before, at_s = self._written.get(gang.uid, (None, float("-inf")))
        if gang.state is GangState.FINISHED:
            return before not in {None, self._rough(snapshot, gang)}  # once: what it ran and cost in all
        rests_s = min(WRITTEN_AGAIN_S, max(WRITTEN_FIRST_S, at_s - gang.since_s))
        return before != self._rough(snapshot, gang) or snapshot.now_s > at_s + rests_s

    def _tell_of(self, seen: LastPass, gang: Gang) -> bool:
        self._written[gang.uid] = self._rough(seen.snapshot, gang), seen.snapshot.now_s
        self._pace.spend(1.0)
        if self._write is not None:
            try:
                self._write(gang, self.explain_quietly(seen, gang))
            except NotFound:
                pass  # its job has been deleted in this moment, and the Workload with it
            except KubeError as error:
                log.warning("explanation_not_written", gang=gang.name, why=str(error))
                self._count_failure("write")
        return True

    def _rough(self, snapshot: Snapshot, gang: Gang) -> object:
        """Returns what makes the short form other news: instants to the quarter of an hour, far places to a tenth."""
        kept, start = self._kept.get(gang.uid), self._forecast.estimates.get(gang.uid)
        when = start and (start.p50_s is not None and round(start.p50_s / 900))
        best = kept.advice[0].words if kept is not None and kept.advice else kept is not None
        place = self._places.get(gang.uid, 0)
        near = place if place < 20 else round(log2(place) * 10)
        job = snapshot.jobs.get(gang.uid)
        asks = job and (job.queue, job.priority_class, pods_in(job.pod_sets))
        return str(gang.state), _why(gang), best, when if gang.state in _WAITING else None, near, gang.queue, asks

    def explain_quietly(self, seen: LastPass, gang: Gang) -> GangExplanation:
        """Returns the explanation without having anything found anew for it."""
        return explain_gang(*seen, gang, self.lately(*seen, gang))


_WAITING: Final = frozenset({GangState.PENDING, GangState.RESERVED})


def _why(gang: Gang) -> tuple[str, str]:
    return str(gang.reason), gang.message


def _stale(kept: _KeptAdvice | None, gang: Gang, seen: LastPass, holds_s: float) -> bool:
    return kept is None or kept.why != _why(gang) or seen.snapshot.now_s > kept.at_s + holds_s


def keeper_of(
    settings: Settings,
    terms: CostTerms,
    api: KubeTransport,
    monotonic: Callable[[], float],
    leading: Callable[[], bool],
    failed: Callable[[str], object],
) -> ExplanationKeeper:
    """The keeper of an agent with these settings: it learns of the record at first, and reads the ledger, if any."""
    said = settings.ledger
    spent = (
        None
        if said is None
        else Spending(partial(open_ledger, said, settings.region, read_only=True), settings.cluster, said.keep_months)
    )

    def write(gang: Gang, told: GangExplanation | None) -> None:
        body = explanation_status(gang, told)
        api.apply(WORKLOADS, gang.workload, body, gang.namespace, "status", force=True, manager=EXPLAINED_BY)

    known = _recorded(settings.record) if settings.record is not None else ()
    return ExplanationKeeper(monotonic, terms, spent=spent, write=write, leading=leading, known=known, failed=failed)


def _recorded(record: Path) -> Iterator[EndedRun]:
    """Yields the runs that the record says have ended; one that cannot be read teaches nothing."""
    try:
        read = read_trace(record) if record.exists() and record.stat().st_size else ReadTrace(())
    except (OSError, TraceError) as error:
        log.warning("record_not_read", why=str(error))
        return
    yield from (ended_run(it) for it in read.work if it.run_s > 0 and it.uid not in read.unended)
