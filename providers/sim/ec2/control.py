"""The control routes of a running `FakeAws`: how a demo, another process or a person with curl causes faults.

All are below `/muster-sim/`, JSON in and out, e.g. `curl --json '{"zone": "us-east-1a"}' <url>/muster-sim/shortage`.
A *pool* is `"instance_type"`, `"zone"` and `"capacity_type"` (`spot`, `on-demand`, `reserved`).

- `GET machines`: every machine there is, with its user data and when its kubelet is to register.
- `GET ledger`: every launch and its end, with what it cost.
- `GET market`: pools with a capacity or with machines in use, their prices, and the faults.
- `POST shortage`, pool keys and `"on"` (default true): no capacity there; a key left out means any.
- `POST lying`, the same: the minimum of a request is ignored there, so fewer machines may come.
- `POST capacity`, pool keys and `"machines"`: what the pool has in all; spot machines beyond it are interrupted.
  `null` goes back to the default.
- `POST reserve`, `{"id": "cr-...", "instance_type": ..., "zone": ..., "machines": 8}` and, where they differ from the
  defaults, `"kind"` (`default`, `capacity-block`), `"match"` (`targeted`, `open`), `"ends_s"`, `"interruptible"` and
  `"tags"`: a capacity reservation; `POST cancel-reservation`, `{"id": ...}`.
- `POST quota`, `{"spot": false, "group": "P", "vcpus": 192}`: a vCPU quota; `null` lifts it.
- `POST faults`, `{"lost_answers": 1, "slow_boots": 2, "slow_boot_s": 300}`: sets fields of `faults.Faults`.
- `POST interrupt`, `{"instance_id": "i-...", "notice_s": 120}`: spot interruption, a warning now, the end later.
- `POST rebalance`, `POST schedule-change`, `POST kill`, `{"instance_id": "i-..."}`: a recommendation, a host
  retirement, sudden death.

404 for another route, 400 with `{"error": ...}` for a body that does not fit. Bodies must be `application/json`, so
that no web page can post them across origins unasked.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from fleet.snapshot import CapacityPool
from providers.sim.ec2.account import Account, Ec2Error
from providers.sim.ec2.limits import Quota
from providers.sim.ec2.market import PoolFilter
from providers.sim.ec2.reservations import HeldReservation

PREFIX = "/muster-sim/"


class BadControl(Exception):
    """The body does not fit the route."""


class Control:
    """The routes over one account."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._routes: dict[tuple[str, str], Callable[[Mapping[str, Any]], Any]] = {
            ("GET", "machines"): self._machines,
            ("GET", "ledger"): self._ledger,
            ("GET", "market"): self._market,
            ("POST", "shortage"): self._shortage,
            ("POST", "lying"): self._lying,
            ("POST", "capacity"): self._capacity,
            ("POST", "reserve"): self._reserve,
            ("POST", "cancel-reservation"): lambda body: account.cancel_reservation(_text(body, "id")),
            ("POST", "quota"): self._quota,
            ("POST", "faults"): self._faults,
            ("POST", "interrupt"): self._interrupt,
            ("POST", "rebalance"): lambda body: account.rebalance(_text(body, "instance_id")),
            ("POST", "schedule-change"): lambda body: account.schedule_change(_text(body, "instance_id")),
            ("POST", "kill"): lambda body: account.kill(_text(body, "instance_id")),
        }

    def also(self, name: str, act: Callable[[Mapping[str, Any]], Any]) -> None:
        """Add a route `POST <name>` that another part of the simulation answers; it may raise ValueError."""
        self._routes[("POST", name)] = act

    def handle(self, method: str, path: str, content_type: str, body: bytes) -> tuple[int, str]:
        """Status and JSON text of the answer."""
        route = self._routes.get((method, path.removeprefix(PREFIX).strip("/")))
        if route is None:
            return 404, json.dumps({"error": f"no route {method} {path}"})
        try:
            with self._account.lock:
                answer = route(_parse(content_type, body) if method == "POST" else {})
        except (BadControl, Ec2Error, ValueError) as error:
            return 400, json.dumps({"error": str(error)})
        return 200, json.dumps({} if answer is None else answer)

    def _machines(self, _: Mapping[str, Any]) -> Any:
        account = self._account
        return [
            dataclasses.asdict(machine) | {"boot_delay_s": account.boot_delay_s(machine)}
            for machine in account.machines()
        ]

    def _ledger(self, _: Mapping[str, Any]) -> Any:
        return [dataclasses.asdict(entry) for entry in self._account.ledger()]

    def _market(self, _: Mapping[str, Any]) -> Any:
        market, now_s = self._account.market, self._account.now()
        return {
            "now_s": now_s,
            "faults": dataclasses.asdict(market.faults),
            "pools": [
                dataclasses.asdict(pool)
                | {
                    "capacity": market.capacity(pool),
                    "in_use": market.in_use(pool),
                    "free": market.free(pool),
                    "price_usd_h": market.price_usd_h(pool, now_s),
                }
                for pool in market.pools()
            ],
        }

    def _shortage(self, body: Mapping[str, Any]) -> None:
        self._account.market.set_shortage(_filter(body), on=_flag(body))

    def _lying(self, body: Mapping[str, Any]) -> None:
        self._account.market.set_lying(_filter(body), on=_flag(body))

    def _capacity(self, body: Mapping[str, Any]) -> Any:
        chosen = _filter(body)
        if chosen.capacity_type is None or chosen.instance_type is None or chosen.zone is None:
            raise BadControl("capacity_type, instance_type and zone name the pool")
        pool = CapacityPool(chosen.capacity_type, chosen.instance_type, chosen.zone)
        self._account.market.set_capacity(pool, _number_or_none(body, "machines"))
        return {"interrupted": self._account.reclaim(pool)}

    def _reserve(self, body: Mapping[str, Any]) -> None:
        held = HeldReservation(
            _text(body, "id"),
            _text(body, "instance_type"),
            _text(body, "zone"),
            _number_or_none(body, "machines") or 0,
            kind="capacity-block" if body.get("kind") == "capacity-block" else "default",
            match="open" if body.get("match") == "open" else "targeted",
            ends_s=body.get("ends_s"),
            interruptible=bool(body.get("interruptible", False)),
            tags=body.get("tags") or {},
        )
        if held.kind == "capacity-block" and not isinstance(held.ends_s, int | float):
            raise BadControl("a capacity block has an end: ends_s")
        self._account.reserve(held)

    def _quota(self, body: Mapping[str, Any]) -> None:
        quota = Quota(bool(body.get("spot", False)), _text(body, "group"))
        self._account.market.set_quota(quota, _number_or_none(body, "vcpus"))

    def _faults(self, body: Mapping[str, Any]) -> Any:
        faults = self._account.market.faults
        known = {field.name for field in dataclasses.fields(faults)}
        for name, value in body.items():
            if name not in known:
                raise BadControl(f"no fault {name}; there are {', '.join(sorted(known))}")
            endless = name == "shortage_after" and value is None
            if not endless and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
                raise BadControl(f"{name}: {value!r} is not a count or a duration")
        for name, value in body.items():
            setattr(faults, name, value)
        return dataclasses.asdict(faults)

    def _interrupt(self, body: Mapping[str, Any]) -> None:
        notice_s = body.get("notice_s", 120)
        if isinstance(notice_s, bool) or not isinstance(notice_s, int | float) or notice_s < 0:
            raise BadControl(f"notice_s: {notice_s!r} is not a duration")
        self._account.interrupt(_text(body, "instance_id"), float(notice_s))


def _parse(content_type: str, body: bytes) -> Mapping[str, Any]:
    if content_type.partition(";")[0].strip() != "application/json":
        raise BadControl("send application/json (curl --json)")
    parsed = json.loads(body or b"{}")
    if not isinstance(parsed, dict):
        raise BadControl("the body must be a JSON object")
    return parsed


def _filter(body: Mapping[str, Any]) -> PoolFilter:
    unknown = body.keys() - {"capacity_type", "instance_type", "zone", "on", "machines"}
    if unknown:
        raise BadControl(f"unknown key {min(unknown)}")
    if body.get("capacity_type") not in (None, "reserved", "spot", "on-demand"):
        raise BadControl("capacity_type is reserved, spot or on-demand")
    return PoolFilter(body.get("capacity_type"), body.get("instance_type"), body.get("zone"))


def _flag(body: Mapping[str, Any]) -> bool:
    on = body.get("on", True)
    if not isinstance(on, bool):
        raise BadControl("on is true or false")
    return on


def _text(body: Mapping[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise BadControl(f"{key} is missing")
    return value


def _number_or_none(body: Mapping[str, Any], key: str) -> int | None:
    value = body.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise BadControl(f"{key} is a number from 0 or null")
    return value
