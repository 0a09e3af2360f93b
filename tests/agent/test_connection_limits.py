"""Counting connections: in all, by address, and how often an address comes."""

import pytest

from agent.connection_limits import ConnectionLimiter, ConnectionLimits, ConnectionRefusal, site
from providers.clock import VirtualClock


def test_so_many_in_all_and_from_one_address() -> None:
    limiter = ConnectionLimiter(ConnectionLimits(total=3, per_address=2), VirtualClock().monotonic)
    assert [limiter.admit("10.0.0.1") for _ in range(3)] == [None, None, ConnectionRefusal.ADDRESS]
    assert limiter.admit("10.0.0.2") is None
    assert limiter.admit("10.0.0.3") is ConnectionRefusal.TOTAL
    limiter.release("10.0.0.1")
    assert limiter.admit("10.0.0.3") is None
    assert limiter.open == 3


def test_an_address_comes_so_often_with_a_burst_and_gets_its_tokens_back() -> None:
    clock = VirtualClock()
    limiter = ConnectionLimiter(ConnectionLimits(total=100, per_address=100, per_minute=6.0), clock.monotonic)

    def comes(address: str) -> ConnectionRefusal | None:
        refusal = limiter.admit(address)
        if refusal is None:
            limiter.release(address)
        return refusal

    assert [comes("10.0.0.1") for _ in range(7)] == [None] * 6 + [ConnectionRefusal.RATE]
    assert comes("10.0.0.2") is None, "others are not held back by it"
    clock.advance(10.0)
    assert [comes("10.0.0.1"), comes("10.0.0.1")] == [None, ConnectionRefusal.RATE]
    clock.advance(3600.0)
    assert [comes("10.0.0.1") for _ in range(7)] == [None] * 6 + [ConnectionRefusal.RATE]


def test_what_is_known_of_addresses_is_bounded_and_open_connections_stay_counted() -> None:
    limiter = ConnectionLimiter(
        ConnectionLimits(total=100_000, per_address=1, per_minute=1.0), VirtualClock().monotonic
    )
    assert limiter.admit("10.0.0.1") is None
    for number in range(10_000):
        address = f"2001:db8:{number:x}::1"
        assert limiter.admit(address) is None
        limiter.release(address)
    assert len(limiter._callers) <= 4096
    assert limiter.admit("10.0.0.1") is ConnectionRefusal.ADDRESS
    limiter.release("10.0.0.1")
    assert limiter.open == 0


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::"),
        ("2001:db8::ffff:1", "2001:db8::"),
        ("fe80::1%eth0", "fe80::"),
        ("", ""),
    ],
)
def test_an_ipv6_address_stands_for_its_network(address: str, same: str) -> None:
    assert site(address) == same
