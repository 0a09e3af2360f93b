"""The books: what every team has spent this month (UTC), what every local queue used lately, and what was interrupted.

They are kept in a ConfigMap, so that budgets, the order of queues and the interruption rates of offers outlive a
crash and a change of leader.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, get_args

import structlog

from agent.failures import Failures
from agent.mirror import Mirror
from agent.watch import Watcher
from fleet.cost.allocation import MICRO, Bill
from fleet.cost.budgets import BudgetNews, budget_news
from fleet.cost.machine_use import MachineUse
from fleet.cost.silence import SILENCE_S, Silence, bill_since
from fleet.cost.statement import Month, UnknownMonth
from fleet.cost.uses import CostTerms, ended_uses, uses
from fleet.nodeclaims.repair import Registrations, registrations
from fleet.offerings.interruption_rate import learned
from fleet.quota.admission_fair_sharing import GangAdmission, LocalQueueUsage, UsageSample, next_sample
from fleet.quota.build_tree import borrowing
from fleet.quota.queue_binding import payer_of
from fleet.snapshot import CapacityPool, InterruptionHistory, Snapshot
from model.fleet import Fleet
from model.kinds import CapacityType

log = structlog.get_logger(__name__)

SAVED_EVERY_S = 60.0
"""After a crash the time since then is charged by what is known of it afterwards."""
MOST_MICRO_USD = 2**63
"""No books come to that: nine trillion USD."""
BORROWED_EVERY_S = 30.0
"""How often it is found out anew which gangs stand on borrowed quota."""


@dataclass(slots=True)
class UsedMachines:
    """Knows which machine is used by whom and at what price, for all who count money, in the same words."""

    terms: CostTerms = field(default_factory=lambda: CostTerms(payer_of))
    _borrowing: frozenset[str] = frozenset()
    _asked_at_s: float = -inf

    def now(self, fleet: Fleet, snapshot: Snapshot) -> Mapping[str, MachineUse]:
        """Instance id -> use; the same object as long as nothing has changed."""
        if not 0 <= snapshot.now_s - self._asked_at_s < BORROWED_EVERY_S:
            self._asked_at_s, self._borrowing = snapshot.now_s, borrowing(fleet, snapshot)
        return uses(fleet, snapshot, self.terms, self._borrowing)

    def ended(self, fleet: Fleet, snapshot: Snapshot, since_s: float) -> Iterable[tuple[MachineUse, float]]:
        """The machines that ended since then, and when, as far as the cloud still lists them (epoch seconds)."""
        return ended_uses(fleet, snapshot, self.terms, since_s)


@dataclass(slots=True)
class Accounts:
    """Adds up bills, use and interruptions.

    `spent_usd` is what budgets are judged by, `local_usage` what queues are ordered by, `interruptions` offers.
    """

    month: str = ""
    bill: Bill = field(default_factory=Bill)
    tally: UsageSample = field(default_factory=UsageSample)
    local_usage: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Local queue -> resource -> what it used lately; another mapping whenever it changes."""
    interruptions: Mapping[CapacityPool, InterruptionHistory] = field(default_factory=dict)
    """Capacity pool -> what is remembered of its interruptions; another mapping whenever it changes."""
    registrations: Registrations = field(default_factory=dict)
    """Pool -> how its last launches ended. It is not saved: the machines that stand tell most of it."""
    used: UsedMachines = field(default_factory=UsedMachines)
    warned: Mapping[str, int] = field(default_factory=dict)
    """Team -> percent of its budget of which people were told last."""
    trouble: str = ""
    """What the books of this month may lack, and why; empty = nothing."""
    _until_s: float = 0.0
    _billed: Mapping[str, MachineUse] | None = None
    """Machines of the last bill; None before the first."""

    def remember(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Look for machines that EC2 takes back, and for those that join or are given up."""
        self.interruptions = learned(self.interruptions, snapshot)
        self.registrations = registrations(self.registrations, fleet, snapshot)

    def sample(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Look at what gangs hold, if it is time, and at who was admitted since the last call."""
        self._hold(next_sample(fleet, snapshot, self.tally))

    def _hold(self, tally: UsageSample) -> None:
        if tally is not self.tally:
            self.tally, self.local_usage = tally, tally.used()

    def charge(self, fleet: Fleet, snapshot: Snapshot, elapsed_s: float | None = None) -> None:
        """Bill `elapsed_s`, or else the time since the last call by the clock; a new month starts from nothing.

        Who pays for what of it `fleet.cost.silence.bill_since` says. What was before the month is the ledger's alone.
        """
        now = snapshot.now_s
        month = Month.of(now)
        if month.name != self.month:
            self.trouble = "" if self.month else self.trouble
            self.month, self.bill = month.name, Bill()
        if elapsed_s is None and self._until_s > now + SILENCE_S:
            self.trouble = _NOT_SAID.format(f"in {self._until_s - now:.0f} s")
        time = Silence(max(month.begin_s, self.begin_s(now, elapsed_s)), now, snapshot)
        used, ended = self.used.now(fleet, snapshot), self.used.ended(fleet, snapshot, time.begin_s)
        self.bill = self.bill.plus(bill_since(time, used, ended, self._billed, month.begin_s))
        self._billed, self._until_s = used, now

    def begin_s(self, now_s: float, elapsed_s: float | None) -> float:
        """Returns from when on is to be billed (epoch seconds); nothing is before the books began."""
        return (self._until_s or now_s) if elapsed_s is None else now_s - elapsed_s

    @property
    def spent_usd(self) -> dict[str, float]:
        """USD by team this month."""
        return {team: amount / MICRO for team, amount in sorted(self.bill.by_team.items())}

    def dump(self) -> str:
        """Returns the books as text."""
        return json.dumps(self._content())

    def _content(self) -> dict[str, Any]:
        return {
            "month": self.month,
            "total": self.bill.total,
            "by_team": dict(self.bill.by_team),
            "until_s": self._until_s,
            "trouble": self.trouble,
            "warned": dict(self.warned),
            "usage": _dumped(self.tally),
            "interruptions": [
                [pool.capacity_type, pool.instance_type, pool.zone, *memory]
                for pool, memory in sorted(self.interruptions.items())
            ],
        }

    def entries(self) -> str:
        """Returns what has been written into the books, without when: it stays the same while nothing is spent."""
        content = self._content()
        content["usage"]["at_s"] = content["until_s"] = 0.0
        return json.dumps(content)

    def continue_from(self, text: str) -> None:
        """Continue from what was kept, if anything was; books that cannot be read begin anew, and tell of it."""
        try:
            if text:
                self.restore(text)
        except ValueError as error:
            self.trouble = f"the books that were kept cannot be read, and begin anew: {str(error)[:200]}"
            log.warning("books_unreadable", why=str(error))

    def restore(self, text: str) -> None:
        """Continue from what was kept; raises ValueError for anything else.

        Amounts that do not say when they were charged last, at a time of their month, stay, and nothing before the next
        charge is added to them: to bill a month once more would stop teams by their budgets.
        """
        try:
            kept: Any = json.loads(text)
            by_team = {str(team): _micro_usd(amount) for team, amount in kept["by_team"].items()}
            month, total = str(kept["month"]), int(kept["total"])
            tally = _restored(kept["usage"]) if "usage" in kept else UsageSample()
            interruptions = dict(map(_remembered, kept.get("interruptions", ())))
            warned = {str(team): int(level) for team, level in kept.get("warned", {}).items()}
            until_s, trouble = kept.get("until_s", 0.0), str(kept.get("trouble", ""))[:500]
        except (AttributeError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(f"these are no books: {error!r}") from error
        if sum(by_team.values()) != total:
            raise ValueError("the kept books do not add up")
        self.month, self.bill = month, Bill(total, by_team)
        said = until_s == 0 or _is_of_month(until_s, month)
        self._until_s = float(until_s) if said else 0.0
        self.trouble = trouble if said else _NOT_SAID.format(repr(until_s)[:40])
        self.interruptions, self.warned = interruptions, warned
        self._hold(tally)


_NOT_SAID = (
    "the books of this month do not say when they were charged last ({}): what was spent from then until they were read"
    " is not in them"
)


def _is_of_month(at_s: Any, name: str) -> bool:
    """Returns whether that is an instant of a month: books are charged for the month of their last charge."""
    try:
        month = Month.named(name)
    except UnknownMonth:
        return False
    return isinstance(at_s, int | float) and month.begin_s <= at_s < month.end_s


def _micro_usd(kept: Any) -> int:
    amount = int(kept)
    if not 0 <= amount < MOST_MICRO_USD:
        raise ValueError(f"{kept!r} is no amount")
    return amount


def _remembered(kept: Any) -> tuple[CapacityPool, InterruptionHistory]:
    """Raises TypeError or ValueError for anything that is no memory."""
    capacity_type, instance_type, zone, weight, at_s = kept
    if capacity_type not in get_args(CapacityType):
        raise ValueError(f"{capacity_type!r} is no capacity type")
    return CapacityPool(capacity_type, str(instance_type), str(zone)), InterruptionHistory(
        _amount(weight), _amount(at_s)
    )


def _dumped(tally: UsageSample) -> dict[str, Any]:
    accounts = {
        local: {"consumed": dict(account.consumed), "penalty": dict(account.penalty)}
        for local, account in sorted(tally.accounts.items())
    }
    return {"at_s": tally.at_s, "accounts": accounts, "ahead": sorted(tally.ahead)}


def _restored(kept: Any) -> UsageSample:
    """Raises AttributeError, KeyError, TypeError or ValueError for anything that is no tally."""
    at_s = _amount(kept["at_s"])
    accounts = {
        str(local): LocalQueueUsage(_amounts(account["consumed"]), at_s, _amounts(account["penalty"]))
        for local, account in kept["accounts"].items()
    }
    return UsageSample(
        accounts, at_s, frozenset(GangAdmission(str(uid), _amount(when_s)) for uid, when_s in kept["ahead"])
    )


def _amounts(kept: Any) -> dict[str, float]:
    return {str(resource): _amount(amount) for resource, amount in kept.items()}


def _amount(kept: Any) -> float:
    amount = float(kept)
    if not isfinite(amount) or amount < 0:
        raise ValueError(f"{kept!r} is no amount")
    return amount


class Bookkeeper(Watcher):
    """Watches the brain's turns and saves the books now and then."""

    def __init__(
        self,
        accounts: Accounts,
        save: Callable[[str], None],
        monotonic: Callable[[], float],
        failures: Failures | None = None,
        every_s: float = SAVED_EVERY_S,
    ) -> None:
        """`monotonic` is a clock that nobody sets: what time is billed does not depend on the time of day."""
        self.accounts = accounts
        self._failures = Failures() if failures is None else failures
        self._save = save
        self._monotonic = monotonic
        self._every_s = every_s
        self.tell: Callable[[BudgetNews, Fleet], object] = lambda _news, _fleet: None
        """Is told who comes near the end of a budget."""
        self._saved_at_s = -inf
        self._saved = ""
        self._charged_at_s: float | None = None

    def _warn(self, fleet: Fleet) -> None:
        """Tells who has come near the end of a budget, each level once: that it is told is saved at once."""
        accounts = self.accounts
        news, accounts.warned = budget_news(fleet, accounts.spent_usd, accounts.month, accounts.warned)
        for it in news:
            self.tell(it, fleet)
            self._saved_at_s = -inf

    def inform(self, mirror: Mirror) -> None:
        """Tells the mirror what the next decisions need: money spent, recent use, interruptions and failed launches."""
        mirror.spent_usd = self.accounts.spent_usd
        mirror.local_usage = self.accounts.local_usage
        mirror.interruptions = self.accounts.interruptions
        mirror.registrations = self.accounts.registrations

    def turning(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Charges a time in which nobody looked, before anything is decided: who held what is forgotten by that."""
        now_s, elapsed_s = snapshot.now_s, self._elapsed_s()
        if Silence(self.accounts.begin_s(now_s, elapsed_s), now_s, snapshot).unseen:
            self._charge(fleet, snapshot, elapsed_s)

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Counts admissions and interruptions at once, charges once a second, saves now and then."""
        self.accounts.sample(fleet, snapshot)
        self.accounts.remember(fleet, snapshot)
        elapsed_s = self._elapsed_s()
        if elapsed_s is None or elapsed_s >= 1.0:
            self._charge(fleet, snapshot, elapsed_s)
        now_s = self._monotonic()
        if now_s - self._saved_at_s >= self._every_s:
            self._saved_at_s = now_s
            self._save_what_is_new()

    def _elapsed_s(self) -> float | None:
        """Returns the time since the last charge; None where there was none, and the books alone know."""
        return None if self._charged_at_s is None else self._monotonic() - self._charged_at_s

    def _charge(self, fleet: Fleet, snapshot: Snapshot, elapsed_s: float | None) -> None:
        now_s = self._monotonic()
        self.accounts.charge(fleet, snapshot, elapsed_s)
        self._charged_at_s = now_s
        self._failures.books = self.accounts.trouble
        self._warn(fleet)

    def _save_what_is_new(self) -> None:
        """A fleet without machines spends nothing: the ConfigMap is left as it is then."""
        if (entries := self.accounts.entries()) != self._saved:
            self._saved = entries
            self._save(self.accounts.dump())
