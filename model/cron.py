"""Five-field cron as `robfig/cron` v3 (`ParseStandard`), which Karpenter's budgets use, reads it; in any time zone."""

from bisect import bisect_left
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from math import floor
from typing import NamedTuple
from zoneinfo import ZoneInfo

_EPOCH = date(1970, 1, 1).toordinal()
_DAY_MINUTES = 1440
_SHIFT_S = 2 * 3600.0
"""Clocks are set by less (the largest change of summer time is two hours)."""
_HORIZON_DAYS = 366 * 9
"""Longer than any gap between two 29 Februaries (2096 to 2104)."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class UnknownTimeZone(ValueError):
    """There is no time zone of this name."""


class InvalidCron(ValueError):
    """The text is not a cron schedule."""


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: dict[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of month", 1, 31, {}),
    _Field("month", 1, 12, {name: index + 1 for index, name in enumerate(_MONTHS)}),
    _Field("day of week", 0, 6, {name: index for index, name in enumerate(_DAYS)}),
)


class _Set(NamedTuple):
    values: frozenset[int]
    star: bool
    """Written `*` or `?` without a step, so that the other day field decides alone."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A schedule; `parse` makes it, `next_after` asks it."""

    text: str
    minutes_of_day: tuple[int, ...]
    days_of_month: frozenset[int]
    months: frozenset[int]
    days_of_week: frozenset[int]
    both_days: bool
    """A day must match both day fields (one of them is `*`); otherwise either suffices."""
    zone: str = ""
    """Name of a time zone; empty = UTC."""

    @staticmethod
    def parse(text: str, zone: str = "") -> "Cron":
        """The schedule `text` describes; raises `InvalidCron` naming the field that is wrong, and `UnknownTimeZone`."""
        parsed = _parse(text)
        return replace(parsed, zone=zone) if _zone(zone) is not None else parsed

    def next_after(self, instant_s: float) -> float | None:
        """The first opening strictly after `instant_s` (Unix seconds), None when there is none within nine years.

        Where clocks are set forward, what would open within the hour that is left out opens as much later; where they
        are set back it opens once, the first time.
        """
        zone = _zone(self.zone)
        if zone is None:
            return self._next_after(instant_s)
        try:
            return self._next_in(zone, instant_s)
        except (OverflowError, ValueError, OSError):
            return None  # beyond the calendar

    def _next_in(self, zone: ZoneInfo, instant_s: float) -> float | None:
        around = (datetime.fromtimestamp(instant_s + by_s, zone).utcoffset() for by_s in (-_SHIFT_S, 0.0, _SHIFT_S))
        offsets_s = [offset.total_seconds() for offset in around if offset is not None]
        wall_s = instant_s + offsets_s[1] - (0.0 if len(set(offsets_s)) == 1 else _SHIFT_S)
        while (opens_s := self._next_after(wall_s)) is not None:
            found_s = datetime.fromtimestamp(opens_s, UTC).replace(tzinfo=zone).timestamp()
            if found_s > instant_s:
                return found_s
            wall_s = opens_s
        return None

    def _next_after(self, instant_s: float) -> float | None:
        minute = floor(instant_s / 60) + 1
        day, first = divmod(minute, _DAY_MINUTES)
        try:
            today = date.fromordinal(_EPOCH + day)
            return self._search(today, first)
        except (OverflowError, ValueError):
            return None  # beyond the calendar (years 1 to 9999)

    def _search(self, today: date, first_minute: int) -> float | None:
        last = today + timedelta(days=_HORIZON_DAYS)
        while today <= last:
            if today.month not in self.months:
                today, first_minute = _first_of_next_month(today), 0
                continue
            index = bisect_left(self.minutes_of_day, first_minute)
            if index < len(self.minutes_of_day) and self._opens_on(today):
                return ((today.toordinal() - _EPOCH) * _DAY_MINUTES + self.minutes_of_day[index]) * 60.0
            today, first_minute = today + timedelta(days=1), 0
        return None

    def _opens_on(self, day: date) -> bool:
        of_month = day.day in self.days_of_month
        of_week = day.isoweekday() % 7 in self.days_of_week
        return of_month and of_week if self.both_days else of_month or of_week


def window_active(schedule: Cron, duration_s: float, now_s: float) -> bool:
    """Whether a window of `duration_s` that `schedule` opens contains `now_s` (Karpenter `Budget.IsActive`)."""
    if duration_s == float("inf"):
        return True
    opened = schedule.next_after(now_s - duration_s)
    return opened is not None and opened <= now_s


MOST_OPENINGS = 1_000
"""Openings that are looked at for the end of a window which opens anew before it has closed."""


def window_end(schedule: Cron, duration_s: float, now_s: float) -> float:
    """When the window around `now_s` ends (Unix seconds): `now_s` outside of it, inf where no end is found."""
    end_s = now_s
    for _ in range(MOST_OPENINGS):
        if duration_s == float("inf"):
            break
        opened = schedule.next_after(end_s - duration_s)
        if opened is None or opened > end_s:
            return end_s
        end_s = opened + duration_s
    return float("inf")


def next_edge_s(schedule: Cron, duration_s: float, now_s: float) -> float:
    """When the window opens next, or closes where it is open (Unix seconds); inf = neither happens."""
    closes_s = window_end(schedule, duration_s, now_s)
    if closes_s > now_s:
        return closes_s
    opens_s = schedule.next_after(now_s)
    return float("inf") if opens_s is None else opens_s


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo | None:
    """The time zone of a name, by the package `tzdata` or the system; None for UTC."""
    if name in {"", "UTC"}:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise UnknownTimeZone(f"there is no time zone {name!r}; they are named like Europe/Berlin, or UTC") from error


@lru_cache(maxsize=1024)
def _parse(text: str) -> Cron:
    words = text.split()
    if words and words[0].startswith("@"):
        if text.strip() not in MACROS:
            raise InvalidCron(f"unknown schedule {text!r}; known are {', '.join(MACROS)}")
        words = MACROS[words[0]].split()
    if words and words[0].startswith(("TZ=", "CRON_TZ=")):
        raise InvalidCron(
            "no time zone stands in a schedule: windows of a FleetPolicy have timeZone, budgets are in UTC"
        )
    if len(words) != len(_FIELDS):
        raise InvalidCron(
            f"{text!r} has {len(words)} fields; a schedule has five: minute hour day-of-month month day-of-week"
        )
    minutes, hours, days, months, weekdays = (_set(field, word) for field, word in zip(_FIELDS, words, strict=True))
    times = sorted(hour * 60 + minute for hour in hours.values for minute in minutes.values)
    return Cron(text, tuple(times), days.values, months.values, weekdays.values, days.star or weekdays.star)


def _set(field: _Field, text: str) -> _Set:
    parts = [_range(field, part) for part in text.split(",")]
    return _Set(frozenset().union(*(part.values for part in parts)), any(part.star for part in parts))


def _range(field: _Field, text: str) -> _Set:
    """`*`, `n`, `n-m`, each with an optional `/step`; `n/step` means `n-<highest>/step`."""
    body, slash, step_text = text.partition("/")
    low_text, dash, high_text = body.partition("-")
    star = body in {"*", "?"}
    if star:
        low, high = field.low, field.high
    else:
        low = _number(field, low_text)
        high = _number(field, high_text) if dash else (field.high if slash else low)
    step = _digits(field, step_text) if slash else 1
    if low > high:
        raise InvalidCron(f"{field.name}: the range {body!r} runs backwards")
    if step == 0:
        raise InvalidCron(f"{field.name}: a step must be positive")
    return _Set(frozenset(range(low, high + 1, step)), star and step == 1)


def _number(field: _Field, text: str) -> int:
    value = field.names.get(text.lower())
    if value is None:
        value = _digits(field, text)
    if not field.low <= value <= field.high:
        sunday = "; Sunday is 0" if field.names.get("sun") == 0 and value == 7 else ""
        raise InvalidCron(f"{field.name}: {value} is not within {field.low} and {field.high}{sunday}")
    return value


def _digits(field: _Field, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise InvalidCron(f"{field.name}: {text!r} is not a number")
    return int(text)


def _first_of_next_month(day: date) -> date:
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)
