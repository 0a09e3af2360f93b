"""The ledger's keeper: looks at what every machine is used for, and has hours that are over written into the ledger.

The brain only looks. Whatever waits for a disk or a network runs on a thread of its own, one task at a time; what came
of it is taken in at the next turn. A ledger that cannot be reached costs no record: hours stay open until written.
Hours in which nobody looked at a spot machine wait until what it cost then is read from the cloud's price history.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import UTC, datetime
from functools import partial
from math import inf

import msgspec
import structlog

from agent.accounts import UsedMachines
from agent.backoff import Backoff
from agent.config import Settings
from agent.failures import Failures
from agent.ledger_settings import LedgerSettings, open_ledger
from agent.mirror import Mirror
from agent.watch import Watcher
from fleet.actions import Action, TerminateMachines
from fleet.cost.machine_use import Commitment, MachineUse
from fleet.cost.meter import Meter
from fleet.cost.open_hours import MeterState, SpotSilence
from fleet.cost.records import AHEAD_S, HOUR_S
from fleet.cost.silence import SILENCE_S
from fleet.cost.uses import CostTerms, NegotiatedRate
from fleet.quota.queue_binding import payer_of
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from providers.ports import Cloud, CloudError
from providers.store.port import Ledger, LedgerError, OpenHours

log = structlog.get_logger(__name__)

LOOKED_EVERY_S = 1.0
KEPT_EVERY_S = 60.0
"""How often open hours are kept: what a crash costs is told of by what is there afterwards."""
NOTED_EVERY_S = 10.0
"""The same where something was noted that could not be told of afterwards."""
PRICES_WITHIN_S = 86_400.0
"""So long after a silence the prices of spot machines in it are tried to be read; those from before it count then."""
_LEDGER, _PRICES = "ledger", "prices"
_Outcome = Callable[[], None]


class LedgerKeeper(Watcher):
    """Watches the brain's turns, and keeps a ledger. `failures.ledger` says why it cannot, while that is so."""

    def __init__(
        self,
        settings: LedgerSettings,
        cluster: str,
        open_ledger: Callable[[], Ledger],
        used: UsedMachines,
        cloud: Cloud,
        executor: Executor,
        failures: Failures,
        leading: Callable[[], bool],
    ) -> None:
        self._keep_months = settings.keep_months
        self._cluster = cluster
        self._open_ledger = open_ledger
        self._used = used
        self._cloud = cloud
        self._executor = executor
        self._failures = failures
        self._leading = leading
        self._meter = Meter(cluster, used.terms.commitments)
        self._ledger: Ledger | None = None
        self._ready = False
        self._looked_at_s = self._kept_at_s = -inf
        self._outcomes: deque[_Outcome] = deque()
        self._busy, self._noted = False, 0
        self._ended: dict[str, tuple[MachineUse, float]] = {}
        """Id -> a machine that ended while nobody looked, as it was found first, and when."""
        self._pauses = Backoff()
        self._troubles: dict[str, str] = {}
        self._now_s = 0.0

    def turning(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Find out what ended while nobody looked, before claims of it are closed: also before a ledger is open."""
        if not 0 <= snapshot.now_s - self._looked_at_s <= SILENCE_S:
            for use, at_s in self._used.ended(fleet, snapshot, max(0.0, self._looked_at_s)):
                first, _ = self._ended.get(use.machine, (use, at_s))
                self._ended[use.machine] = first, at_s

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Look every few seconds; have written what is over, and kept what is not."""
        self._now_s = now_s = snapshot.now_s
        while self._outcomes:
            self._outcomes.popleft()()
        if not self._ready:
            self._ask(self._opened)
            return
        if not 0 <= now_s - self._looked_at_s < LOOKED_EVERY_S:
            self._looked_at_s = now_s
            used, team_of = self._used.now(fleet, snapshot), partial(self._used.terms.payer, fleet)
            self._meter.look(snapshot, used, team_of, self._ended.values())
            self._ended.clear()
        hour_s, silence = self._meter.due(now_s), self._meter.silence()
        if silence is not None and not self._paused(_PRICES):
            self._ask(partial(self._read_prices, silence), _PRICES)
        elif hour_s is not None:
            self._ask(partial(self._append, self._meter.state(), hour_s))
        elif not 0 <= now_s - self._kept_at_s < (KEPT_EVERY_S if self._meter.noted == self._noted else NOTED_EVERY_S):
            self._ask(partial(self._keep, self._meter.state(), now_s, self._meter.noted))

    def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
        """Hear why machines are given back, which may be over before the next look."""
        if isinstance(action, TerminateMachines):
            self._meter.returned(action.instance_ids, action.reason)

    def close(self) -> None:
        """Keep what is open, and let go of the ledger."""
        if self._ready and self._meter.until_s:
            task = partial(self._keep, self._meter.state(), self._now_s, self._meter.noted)
            self._executor.submit(self._run, task, _LEDGER)
        self._executor.submit(self._let_go)
        self._executor.shutdown(wait=True)

    def _let_go(self) -> None:
        if self._ledger is not None:
            self._ledger.close()

    def _ask(self, task: Callable[[], _Outcome], key: str = _LEDGER) -> None:
        """Have a task carried out, unless one is under way or the last of its key has just failed."""
        if not (self._busy or self._paused(key)):
            self._busy = True
            self._executor.submit(self._run, task, key)

    def _paused(self, key: str) -> bool:
        return key in self._pauses.pausing(self._now_s)

    def _run(self, task: Callable[[], _Outcome], key: str) -> None:
        if not self._leading():
            self._outcomes.append(self._rest)  # the hours are the next leader's
            return
        try:
            told = task()
        except (LedgerError, CloudError) as error:
            log.warning("ledger_failed", why=str(error), transient=error.transient)
            self._outcomes.append(partial(self._failed, key, str(error)))
        except Exception as error:
            log.exception("ledger_failed")
            self._outcomes.append(partial(self._failed, key, f"{type(error).__name__}: {error}"))
        else:
            self._outcomes.append(partial(self._succeeded, key, told))

    # -- on the ledger's thread -------------------------------------------------------------------------------------

    def _opened(self) -> _Outcome:
        self._ledger = self._ledger or self._open_ledger()
        return partial(self._begin, self._ledger.open_hours(self._cluster))

    def _append(self, state: MeterState, hour_s: float) -> _Outcome:
        ledger = self._held()
        added = ledger.append(state.records(hour_s))
        ledger.append_starts(state.started(hour_s))
        log.info("hour_written", hour=_instant(hour_s), records=added)
        if hour_s % (24 * HOUR_S) == 0:
            ledger.forget_before(months_before(hour_s, self._keep_months))
        return partial(self._meter.done, hour_s)

    def _read_prices(self, silence: SpotSilence) -> _Outcome:
        try:
            history = self._cloud.spot_history(*silence)
        except CloudError as error:
            if error.transient and self._now_s < silence.end_s + PRICES_WITHIN_S:
                raise
            log.warning("spot_prices_not_read", why=str(error), begin=_instant(silence.begin_s))
            history = {}
        return partial(self._meter.priced, silence, history)

    def _keep(self, state: MeterState, at_s: float, noted: int) -> _Outcome:
        self._held().keep_open(self._cluster, OpenHours(state.until_s, msgspec.json.encode(state)))
        return partial(self._kept, at_s, noted)

    def _held(self) -> Ledger:
        if self._ledger is None:
            raise LedgerError("the ledger is not open")
        return self._ledger

    # -- on the brain's thread --------------------------------------------------------------------------------------

    def _begin(self, kept: OpenHours | None) -> None:
        self._ready = True
        if kept is None:
            return
        if kept.until_s > self._now_s + AHEAD_S:
            log.warning("open_hours_of_the_future", until=_instant(kept.until_s))
        try:
            self._meter.restore(msgspec.json.decode(kept.body, type=MeterState))
        except msgspec.MsgspecError as error:
            log.warning("open_hours_unreadable", why=str(error))

    def _kept(self, at_s: float, noted: int) -> None:
        self._kept_at_s, self._noted = at_s, noted

    def _rest(self) -> None:
        self._busy = False

    def _succeeded(self, key: str, then: _Outcome) -> None:
        self._busy = False
        self._pauses.succeeded(key)
        self._troubles.pop(key, None)
        self._failures.ledger = "; ".join(self._troubles.values())
        then()

    def _failed(self, key: str, words: str) -> None:
        self._busy = False
        self._pauses.failed(key, self._now_s)
        self._troubles[key] = f"what spot machines cost while nobody looked: {words}" if key == _PRICES else words
        self._failures.ledger = "; ".join(self._troubles.values())


def terms_of(settings: LedgerSettings | None) -> CostTerms:
    """The terms by which costs are told apart."""
    if settings is None:
        return CostTerms(payer_of)
    rates = (
        NegotiatedRate(it.instance_type, it.capacity_type, it.usd_per_hour, it.percent_off or 0.0, it.source)
        for it in settings.rates
    )
    commitments = (
        Commitment(
            it.reservation,
            it.instance_type,
            it.zone,
            it.machines,
            it.begin.timestamp(),
            it.end.timestamp(),
            it.upfront_usd,
            it.usd_per_hour,
            it.source,
        )
        for it in settings.commitments
    )
    return CostTerms(payer_of, settings.user_label, tuple(rates), tuple(commitments))


def ledger_keepers(
    settings: Settings, used: UsedMachines, cloud: Cloud, failures: Failures, leading: Callable[[], bool]
) -> tuple[LedgerKeeper, ...]:
    """The keeper of the ledger that the settings name; none where they name none."""
    from concurrent.futures import ThreadPoolExecutor

    said = settings.ledger
    if said is None:
        return ()
    executor = ThreadPoolExecutor(1, thread_name_prefix="ledger")
    opened = partial(open_ledger, said, settings.region)
    return (LedgerKeeper(said, settings.cluster, opened, used, cloud, executor, failures, leading),)


def months_before(at_s: float, months: int) -> float:
    """The begin of the calendar month (UTC) so many months before that of an instant (epoch seconds)."""
    at = datetime.fromtimestamp(at_s, UTC)
    count = at.year * 12 + at.month - 1 - months
    return datetime(count // 12, count % 12 + 1, 1, tzinfo=UTC).timestamp()


def _instant(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%MZ")
