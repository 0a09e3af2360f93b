"""`reservations`: who holds a place in which reservation."""

from typing import Any

from bench.reference.karpenter.buy.reservations import OverReserved, ReservationManager
from tests.conformance.cases import Case


def run(case: Case) -> dict[str, Any]:
    """What can be reserved and what remains after the operations, or that they were a mistake."""
    given, expect = case["given"], case["expect"]
    books = ReservationManager({each["id"]: each["capacity"] for each in given["reservations"]})
    error = False
    for operation in given["ops"]:
        try:
            if "reserve" in operation:
                books.reserve(operation["reserve"], operation["ids"])
            else:
                books.release(operation["release"], operation["ids"])
        except OverReserved:
            error = True
    asked = (tuple(each.split(":", 1)) for each in expect.get("can_reserve", {}))
    return {
        "error": error,
        "can_reserve": {f"{host}:{which}": books.can_reserve(host, which) for host, which in asked},
        "remaining": {each: books.remaining(each) for each in expect.get("remaining", {})},
    }
