"""`muster cost`: what a month cost, from the ledger, by whatever somebody wants to see."""

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from agent.cli import exits
from fleet.cost.records import DAY_S, HOUR_S, LedgerRecord, StartRecord
from fleet.cost.statement import DIMENSIONS, Month, Statement, UnknownMonth, fields_of, statement
from fleet.cost.statement_text import statement_csv, statement_html, statement_json, statement_table
from fleet.cost.sums import UsedHours, used_hours
from model.hints import did_you_mean
from model.plain_text import plain_block
from providers.clock import Clock
from providers.store.port import Ledger, LedgerError

if TYPE_CHECKING:  # whoever names a file needs no settings, and those take longer to read than a month
    from agent.config import Settings
    from fleet.cost.open_hours import MeterState

T = TypeVar("T")
_RENDERERS: Final[Mapping[str, Callable[[Statement], str]]] = {
    "table": statement_table,
    "csv": statement_csv,
    "json": statement_json,
    "html": statement_html,
}
_SELLERS: Final[Mapping[str, tuple[str, str]]] = {"aws": ("AWS", "Amazon Elastic Compute Cloud")}


class CostRequest(NamedTuple):
    """Which costs are asked for, of which ledger."""

    month: str
    """`2026-10`; empty = the running one."""
    by: str
    """Dimensions, with commas; empty = `team`, and in FOCUS a row for every hour."""
    config: Path
    """The agent's settings, which name the ledger."""
    ledger: str
    """The ledger's file, or `s3://BUCKET/PREFIX`, in place of what the settings say; empty = as they say."""
    cluster: str
    """Empty = all clusters that the ledger knows."""


def show_costs(ask: CostRequest, output: str, clock: Clock) -> int:
    """Print them; the exit code."""
    try:
        (open_ledger, settings), month = ledger_of(ask), month_of(ask.month, clock)
        by = dimensions(ask.by or "team") if output != "focus" else _charge_periods(ask.by)
    except (NoLedger, UnknownMonth, UnknownDimension) as error:
        exits.complain(*str(error).splitlines())
        return exits.ERROR
    try:
        ledger = open_ledger()
        try:
            if output == "focus":
                _write_focus(_focus_records(ledger, month, ask.cluster, by), settings, DAY_S if by else HOUR_S)
            else:
                until_s = known_until(ledger, ask.cluster, clock.now())
                records = month_sums(ledger, month, fields_of(by), ask.cluster)
                to_come = month_to_come(ledger, month, until_s, ask.cluster, by_day="day" in by)
                sys.stdout.write(plain_block(_RENDERERS[output](statement(records, month, by, until_s, to_come))))
        finally:
            ledger.close()
    except LedgerError as error:
        exits.complain(error)
        return exits.ERROR
    return exits.OK


class UnknownDimension(ValueError):
    """A name stands for nothing that costs can be told apart by."""


def dimensions(text: str) -> tuple[str, ...]:
    """What costs are told apart by; raises `UnknownDimension`."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in DIMENSIONS:
            hint = did_you_mean(name, DIMENSIONS)
            raise UnknownDimension(f"--by {name}: costs are told apart by {', '.join(DIMENSIONS)}; {hint}".rstrip("; "))
    if not names:
        raise UnknownDimension(f"--by names nothing: costs are told apart by {', '.join(DIMENSIONS)}")
    return names


def _charge_periods(text: str) -> tuple[str, ...]:
    """`day` or nothing: FOCUS has a column for everything else. Raises `UnknownDimension`."""
    if text not in {"", "day"}:
        raise UnknownDimension(f"--by {text}: rows of FOCUS are of an hour (without --by) or of a day (--by day)")
    return ("day",) if text else ()


def _focus_records(ledger: Ledger, month: Month, cluster: str, by: tuple[str, ...]) -> Iterator[LedgerRecord]:
    """Records of hours; by day each subject's on each machine and at each price as one."""
    if not by:
        return month_records(ledger, month, cluster)

    from fleet.cost.focus import FOCUS_FIELDS

    def read(begin_s: float, end_s: float, name: str) -> Iterator[LedgerRecord]:
        return ledger.sums(begin_s, end_s, FOCUS_FIELDS, name)

    return _of_month(ledger, month, cluster, read, lambda records: records)


def month_of(text: str, clock: Clock) -> Month:
    """The month that is asked for; raises `UnknownMonth`."""
    return Month.named(text) if text else Month.of(clock.now())


class NoLedger(Exception):
    """Nothing names a ledger, or what should cannot be used; the message says what to do."""


def ledger_of(ask: CostRequest) -> tuple[Callable[[], Ledger], "Settings | None"]:
    """What opens the ledger for reading, and the settings that name it, unless its place is given; raises `NoLedger`.

    To open it may raise `LedgerError`.
    """
    if not ask.ledger or ask.ledger.startswith("s3://"):
        return _ledger_of_settings(ask)
    from providers.store.sqlite import SqliteLedger

    return partial(SqliteLedger, Path(ask.ledger), read_only=True), None


def _ledger_of_settings(ask: CostRequest) -> tuple[Callable[[], Ledger], "Settings | None"]:
    from pydantic import ValidationError

    from agent.config import InvalidConfiguration, load_settings
    from agent.ledger_settings import LedgerSettings, S3Settings, open_ledger

    if ask.ledger:
        bucket, _, prefix = ask.ledger.removeprefix("s3://").partition("/")
        try:
            place = S3Settings(bucket=bucket, prefix=prefix)
        except ValidationError as error:
            raise NoLedger(f"--ledger {ask.ledger} names no place in S3: write s3://BUCKET/PREFIX") from error
        return partial(open_ledger, LedgerSettings(s3=place), read_only=True), None
    try:
        settings = load_settings(ask.config)
    except InvalidConfiguration as error:
        raise NoLedger(str(error)) from error
    if settings.ledger is None:
        raise NoLedger("the settings name no ledger: give them a section `ledger`, or the file by --ledger")
    return partial(open_ledger, settings.ledger, settings.region, read_only=True), settings


def known_until(ledger: Ledger, cluster: str, now_s: float) -> float:
    """Returns the instant up to which an agent has kept hours (epoch seconds): that of the latest of all clusters."""
    opened = [ledger.open_hours(name) for name in ([cluster] if cluster else ledger.clusters())]
    return min(now_s, max((it.until_s for it in opened if it is not None), default=now_s))


def month_records(ledger: Ledger, month: Month, cluster: str = "") -> Iterator[LedgerRecord]:
    """The month's records one by one, of each cluster in order of hour, with those of hours that are not over yet."""
    return _of_month(ledger, month, cluster, ledger.read, lambda records: records)


def month_sums(ledger: Ledger, month: Month, by: Sequence[str], cluster: str = "") -> Iterator[LedgerRecord]:
    """The same summed up by the store's engine, for a statement by dimensions of these fields."""

    def read(begin_s: float, end_s: float, name: str) -> Iterator[LedgerRecord]:
        return ledger.sums(begin_s, end_s, by, name)

    return _of_month(ledger, month, cluster, read, lambda records: records)


def month_to_come(
    ledger: Ledger, month: Month, known_s: float, cluster: str = "", *, by_day: bool = False
) -> Iterator[LedgerRecord]:
    """What the rest of the month comes to if all that runs now runs on; `known_s` is up to when costs are known.

    Of a cluster that nobody has looked at in the day before that nothing is foreseen.
    """
    for state in _open_hours(ledger, cluster):
        if month.begin_s <= state.until_s < month.end_s and state.until_s > known_s - DAY_S:
            yield from state.to_come(month.end_s, by_day=by_day)


def month_used(ledger: Ledger, month: Month, cluster: str = "") -> Iterator[UsedHours]:
    """What machines were used for in the month, summed up by the store's engine."""
    return _of_month(ledger, month, cluster, ledger.used_hours, used_hours)


def _of_month(
    ledger: Ledger,
    month: Month,
    cluster: str,
    read: Callable[[float, float, str], Iterator[T]],
    opened: Callable[[Iterable[LedgerRecord]], Iterable[T]],
) -> Iterator[T]:
    for name in [cluster] if cluster else ledger.clusters():
        newest_s = ledger.newest_s(month.begin_s, month.end_s, name)
        until_s = month.begin_s if newest_s is None else newest_s + HOUR_S
        yield from read(month.begin_s, until_s, name)
        for state in _open_hours(ledger, name):
            yield from opened(it for it in state.so_far() if until_s <= it.hour_s < month.end_s)


def month_starts(ledger: Ledger, month: Month, cluster: str = "") -> Iterator[StartRecord]:
    """The starts of gangs that came to run in the month, those of hours that are not over among them."""
    seen = set()
    for start in ledger.read_starts(month.begin_s, month.end_s, cluster):
        seen.add(start.key)
        yield start
    for state in _open_hours(ledger, cluster):
        yield from (it for it in state.starts if month.begin_s <= it.running_s < month.end_s and it.key not in seen)


def _open_hours(ledger: Ledger, cluster: str) -> Iterator["MeterState"]:
    for name in [cluster] if cluster else ledger.clusters():
        kept = ledger.open_hours(name)
        if kept is not None:
            yield _decoded(name, kept.body)


def _decoded(cluster: str, body: bytes) -> "MeterState":
    import msgspec

    from fleet.cost.open_hours import MeterState

    try:
        return msgspec.json.decode(body, type=MeterState)
    except msgspec.MsgspecError as error:
        raise LedgerError(f"the open hours of {cluster} cannot be read: {error}", transient=False) from error


def _write_focus(records: Iterator[LedgerRecord], settings: "Settings | None", period_s: float) -> None:
    from fleet.cost.focus import FOCUS_COLUMNS, Seller, focus_rows

    provider, service = _SELLERS[settings.cloud if settings is not None else "aws"]
    seller = Seller(provider, service, settings.region if settings is not None else "")
    told = io.StringIO()
    write = csv.DictWriter(told, FOCUS_COLUMNS, lineterminator="\n")
    write.writeheader()
    for row in focus_rows(records, seller, period_s):
        write.writerow(row)
        if told.tell() > 1 << 16:
            sys.stdout.write(plain_block(told.getvalue()))
            told.seek(0)
            told.truncate()
    sys.stdout.write(plain_block(told.getvalue()))
