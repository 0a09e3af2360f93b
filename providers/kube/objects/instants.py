"""Instants on the wire: RFC 3339 in UTC with microseconds where there are any, epoch seconds inside."""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=8192)
def parse_instant(text: str) -> float:
    """Epoch seconds of an RFC 3339 text; a text without an offset is UTC. Raises ValueError."""
    parsed = datetime.fromisoformat(text)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def instant_of(text: str | None) -> float:
    """Epoch seconds, or 0.0 where the object does not say."""
    return parse_instant(text) if text else 0.0


@lru_cache(maxsize=8192)
def format_instant(epoch_s: float) -> str:
    """RFC 3339 in UTC; `parse_instant` gives back the same number to the microsecond."""
    moment = datetime.fromtimestamp(epoch_s, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if moment.microsecond else "%Y-%m-%dT%H:%M:%SZ")


def whole_instant(epoch_s: float) -> str:
    """RFC 3339 with whole seconds, as Kubernetes writes `metav1.Time`."""
    return format_instant(float(int(epoch_s)))
