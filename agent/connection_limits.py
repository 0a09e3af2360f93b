"""How many connections a server takes, in all and from one address, and how often: counted before they cost much."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address, ip_address
from pathlib import Path

_ADDRESSES_MOST = 4096
_SITE_BITS = 64
"""Whoever has one IPv6 address has the 2**64 around it."""


class ConnectionRefusal(StrEnum):
    """Why a connection was closed; a label of the metric `muster_http_refused_total`."""

    TOTAL = "total"
    ADDRESS = "address"
    RATE = "rate"
    TLS = "tls"
    SLOW = "slow"
    TOO_LARGE = "too_large"
    MALFORMED = "malformed"
    CRASH = "crash"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the certificate chain and its key lie (PEM)."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one server allows. Times are seconds; a connection carries one request."""

    total: int = 64
    per_address: int = 16
    per_minute: float = 0.0
    """Connections a minute from one address, with a burst of as many; 0 = any number."""
    header_s: float = 5.0
    """From the connection to the last byte of the header (and of the TLS handshake)."""
    request_s: float = 15.0
    """From the connection to its end."""


@dataclass(slots=True)
class _Caller:
    open: int
    tokens: float
    at_s: float


class ConnectionLimiter:
    """Counts connections by address; a token bucket for each address holds down how often it comes."""

    def __init__(self, limits: ConnectionLimits, now_s: Callable[[], float]) -> None:
        self._limits = limits
        self._now_s = now_s
        self._callers: OrderedDict[str, _Caller] = OrderedDict()
        self._open = 0

    @property
    def open(self) -> int:
        """Connections admitted and not released."""
        return self._open

    def admit(self, address: str) -> ConnectionRefusal | None:
        """Takes one more connection of the address; returns why not, and then nothing is to be released."""
        caller = self._caller(address)
        refusal = self._refusal(caller)
        if refusal is None:
            caller.open += 1
            self._open += 1
        return refusal

    def release(self, address: str) -> None:
        """Gives back what `admit` took."""
        self._open -= 1
        caller = self._callers.get(site(address))
        if caller is not None and caller.open:
            caller.open -= 1

    def _refusal(self, caller: _Caller) -> ConnectionRefusal | None:
        limits = self._limits
        if self._open >= limits.total:
            return ConnectionRefusal.TOTAL
        if caller.open >= limits.per_address:
            return ConnectionRefusal.ADDRESS
        if limits.per_minute:
            if caller.tokens < 1.0:
                return ConnectionRefusal.RATE
            caller.tokens -= 1.0
        return None

    def _caller(self, address: str) -> _Caller:
        """Returns the address's counts, with its bucket filled up to now. Of too many, those of long ago go."""
        most, now_s, key = max(1.0, self._limits.per_minute), self._now_s(), site(address)
        caller = self._callers.pop(key, None) or _Caller(0, most, now_s)
        caller.tokens = min(most, caller.tokens + (now_s - caller.at_s) * self._limits.per_minute / 60.0)
        caller.at_s = now_s
        self._callers[key] = caller
        if len(self._callers) > _ADDRESSES_MOST:
            idle = next((name for name, it in self._callers.items() if not it.open), key)
            del self._callers[idle]
        return caller


def site(address: str) -> str:
    """Returns what counts as one address: an IPv4 address, however it is written, or the /64 of an IPv6 address."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Address(int(parsed) >> _SITE_BITS << _SITE_BITS))
