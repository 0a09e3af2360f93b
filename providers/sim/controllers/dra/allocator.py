"""Which devices a pod's claims get on a node: kube-scheduler's structured allocation.

Source: `staging/src/k8s.io/dynamic-resource-allocation/structured` of 1.36. One claim after the other, one request
after the other, one device after the other, the first that is free, selected and within every constraint and counter;
where it does not go on, the last choice is taken back. The first whole solution is it. Devices of one request, and of
requests that are alike, are taken in the order of the list only: the first solution is the same, and found much sooner.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from providers.sim.controllers.dra.inventory import CounterKey, DeviceId, DeviceInventory, PooledDevice
from providers.sim.controllers.dra.requests import (
    AllocationError,
    DeviceConstraint,
    DeviceRequest,
    attribute_of,
    constraints_of,
    consumed_capacity,
    requests_of_claim,
)
from providers.sim.controllers.objects import Obj, key_of
from providers.sim.controllers.scheduling import SchedulableNode
from providers.sim.store.amounts import amount

_STEPS_MOST: Final = 50_000
_RESULTS_MOST: Final = 32
"""Devices of a claim (AllocationResultsMaxSize)."""


class TooManySteps(Exception):
    """Looking for devices takes longer than the scheduler looks (DRASchedulerFilterTimeout)."""


@dataclass(frozen=True, slots=True)
class ChosenDevice:
    """A device that a request gets, and how much of one that several share."""

    request: DeviceRequest
    device: PooledDevice
    consumed: dict[str, Fraction] | None = None


class ClaimAllocation:
    """The search for devices for some claims on one node."""

    def __init__(self, inventory: DeviceInventory, claims: Sequence[Obj], node: SchedulableNode) -> None:
        self._node, self._claims = node, claims
        self._requests = [requests_of_claim(claim, inventory.classes) for claim in claims]
        self._constraints = [list(constraints_of(claim)) for claim in claims]
        pools = inventory.pools_for(node)
        self._pools = pools
        self._usable = [pool for pool in pools if not pool.incomplete and not pool.invalid]
        self._devices = [device for pool in self._usable for device in pool.devices if device.reaches(node)]
        self._whole, self._parts = set(inventory.holding().whole), dict(inventory.holding().parts)
        self._left = {(pool.driver, pool.name): inventory.left(pool) for pool in self._usable if pool.counters}
        self._chosen: list[list[ChosenDevice]] = [[] for _ in claims]
        self._steps = 0

    def allocate(self) -> list[Obj] | None:
        """The allocations of the claims, in their order; None: there are none. Raises AllocationError, TooManySteps."""
        if not self._claim(0):
            return None
        return [self._result(i, chosen) for i, chosen in enumerate(self._chosen)]

    # The search; each step answers whether everything from there on works out

    def _claim(self, claim: int) -> bool:
        return claim == len(self._claims) or self._request(claim, 0)

    def _request(self, claim: int, number: int) -> bool:
        requests = self._requests[claim]
        if number == len(requests):
            return self._claim(claim + 1)
        return any(self._serve(claim, number, request) for request in requests[number])

    def _serve(self, claim: int, number: int, request: DeviceRequest) -> bool:
        if request.count is not None:
            return self._some(claim, number, request, self._devices, request.count, self._first(claim, number))
        self._check_complete(request)
        wanted = [device for device in self._devices if request.selects(device)]
        return bool(wanted) and self._all(claim, number, request, wanted)

    def _first(self, claim: int, number: int) -> int:
        """Where in the list to begin: of requests that are alike the later has the later devices.

        It makes no difference which of them has which, and the search would try every order.
        """
        requests, chosen = self._requests[claim], self._chosen[claim]
        if not number or not chosen or len(requests[number]) + len(requests[number - 1]) > 2:
            return 0
        mine, before = requests[number][0], requests[number - 1][0]
        alike = mine.wanted == before.wanted and all(
            it.concerns(mine) == it.concerns(before) for it in self._constraints[claim]
        )
        if not alike:
            return 0
        last = self._devices.index(chosen[-1].device)
        return last if chosen[-1].device.shareable else last + 1

    def _some(
        self,
        claim: int,
        number: int,
        request: DeviceRequest,
        devices: Sequence[PooledDevice],
        missing: int,
        start: int,
    ) -> bool:
        if not missing:
            return self._request(claim, number + 1)
        for at in range(start, len(devices)):
            device = devices[at]
            self._count_step()
            if not self._is_free(device) or not request.selects(device) or not self._take(claim, request, device):
                continue
            following = at if device.shareable else at + 1
            if self._some(claim, number, request, devices, missing - 1, following):
                return True
            self._give_back(claim)
        return False

    def _all(self, claim: int, number: int, request: DeviceRequest, devices: Sequence[PooledDevice]) -> bool:
        taken = 0
        for device in devices:
            self._count_step()
            if not self._is_free(device) or not self._take(claim, request, device):
                break
            taken += 1
        if taken == len(devices) and self._request(claim, number + 1):
            return True
        for _ in range(taken):
            self._give_back(claim)
        return False

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > _STEPS_MOST:
            raise TooManySteps

    def _check_complete(self, request: DeviceRequest) -> None:
        """All devices can only be given while it is clear which these are."""
        for pool in self._pools:
            if pool.incomplete or pool.invalid:
                state = "being updated" if pool.incomplete else "invalid"
                what = f"claim {'/'.join(key_of(request.claim))}, request {request.name}: asks for all devices"
                raise AllocationError(f"{what}, but resource pool {pool.driver}/{pool.name} is currently {state}")

    # One device

    def _is_free(self, device: PooledDevice) -> bool:
        return device.id not in self._whole

    def _take(self, claim: int, request: DeviceRequest, device: PooledDevice) -> bool:
        """Give a device to a request, if it is free, tolerated, within the constraints and within what is left."""
        if len(self._chosen[claim]) >= _RESULTS_MOST or not request.tolerates(device):
            return False
        constraints = [it for it in self._constraints[claim] if it.concerns(request)]
        if not all(constraint.admits(device) for constraint in constraints):
            return False
        consumed = consumed_capacity(request, device) if device.shareable else None
        if device.shareable and (consumed is None or not self._has_room(device, consumed)):
            return False
        asked = ((request.wanted.get("capacity") or {}).get("requests")) or {}
        if asked and not device.shareable and consumed_capacity(request, device) is None:
            return False
        if not self._consume(device, 1):
            return False
        self._hold(ChosenDevice(request, device, consumed), constraints, claim)
        return True

    def _has_room(self, device: PooledDevice, consumed: dict[str, Fraction]) -> bool:
        held = self._parts.get(device.id, {})
        capacity = device.body.get("capacity") or {}
        return all(
            held.get(name, Fraction(0)) + more <= amount(capacity[name]["value"]) for name, more in consumed.items()
        )

    def _hold(self, chosen: ChosenDevice, constraints: Sequence[DeviceConstraint], claim: int) -> None:
        self._chosen[claim].append(chosen)
        for constraint in constraints:
            constraint.values.append(attribute_of(chosen.device, constraint.attribute))
        self._book(chosen.device.id, chosen.consumed, 1)

    def _give_back(self, claim: int) -> None:
        chosen = self._chosen[claim].pop()
        for constraint in self._constraints[claim]:
            if constraint.concerns(chosen.request):
                constraint.values.pop()
        self._book(chosen.device.id, chosen.consumed, -1)
        self._consume(chosen.device, -1)

    def _book(self, device: DeviceId, consumed: dict[str, Fraction] | None, sign: int) -> None:
        if consumed is None:
            (self._whole.add if sign > 0 else self._whole.discard)(device)
            return
        held = self._parts.get(device, {})
        now = {name: held.get(name, Fraction(0)) + sign * more for name, more in consumed.items()}
        now = {**held, **now, "": held.get("", Fraction(0)) + sign}
        self._parts[device] = now

    def _consume(self, device: PooledDevice, sign: int) -> bool:
        """Take the counters of a device, or give them back; those of a shared one count once."""
        wanted = device.consumed()
        if not wanted or (device.shareable and self._parts.get(device.id, {}).get("", Fraction(0)) > 0):
            return True
        left: dict[CounterKey, Fraction] = self._left.setdefault((device.id.driver, device.id.pool), {})
        if sign > 0 and any(left.get(key, Fraction(0)) < more for key, more in wanted.items()):
            return False
        for key, more in wanted.items():
            left[key] = left.get(key, Fraction(0)) - sign * more
        return True

    # What is written down

    def _result(self, claim: int, chosen: Sequence[ChosenDevice]) -> Obj:
        results = [_written(it, n) for n, it in enumerate(chosen)]
        config = list(_configs(self._claims[claim], chosen))
        selector = self._node_selector([it.device for it in chosen])
        devices = {"results": results, **({"config": config} if config else {})}
        return {"devices": devices, **({"nodeSelector": selector} if selector else {})}

    def _node_selector(self, devices: Sequence[PooledDevice]) -> Obj | None:
        """The nodes where all devices can be used: one, where one of them is a node's own."""
        if any(device.place.get("nodeName") for device in devices):
            named = {"key": "metadata.name", "operator": "In", "values": [self._node.name]}
            return {"nodeSelectorTerms": [{"matchFields": [named]}]}
        terms = [term for it in devices for term in (it.place.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()]
        expressions: list[Obj] = []
        for term in terms:
            expressions += [it for it in term.get("matchExpressions") or () if it not in expressions]
        return {"nodeSelectorTerms": [{"matchExpressions": expressions}]} if expressions else None


def _written(chosen: ChosenDevice, number: int) -> Obj:
    """One device as the status of a claim has it."""
    request, device = chosen.request, chosen.device.id
    found: Obj = {"request": request.name, "driver": device.driver, "pool": device.pool, "device": device.device}
    if request.wanted.get("tolerations"):
        found["tolerations"] = request.wanted["tolerations"]
    if chosen.consumed is not None:
        share = f"{request.claim['metadata']['uid']}/{'/'.join(device)}/{number}"
        found["shareID"] = str(uuid.uuid5(uuid.NAMESPACE_OID, share))
        found["consumedCapacity"] = {name: _text(value) for name, value in sorted(chosen.consumed.items())}
    return found


def _text(value: Fraction) -> str:
    """A quantity as Go writes it: in the largest binary unit that is whole."""
    if value.denominator != 1:
        return f"{int(value * 1000)}m"
    for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if value and value.numerator % size == 0:
            return f"{value.numerator // size}{unit}"
    return str(value.numerator)


def _configs(claim: Obj, chosen: Sequence[ChosenDevice]) -> Iterator[Obj]:
    """The configuration for the driver: of each class once, then the claim's own for requests that were served."""
    served = dict.fromkeys(it.request.name for it in chosen)
    classes = {it.request.device_class["metadata"]["name"]: it.request.device_class for it in chosen}
    everybody = len(claim["spec"]["devices"].get("requests") or ())
    for name, held in classes.items():
        asking = [it for it in served if any(c.request.name == it and _class_of(c) == name for c in chosen)]
        for config in held["spec"].get("config") or ():
            requests = {"requests": asking} if len(asking) < everybody else {}
            yield {"source": "FromClass", **requests, "opaque": config["opaque"]}
    known = {name for it in chosen for name in (it.request.name, it.request.parent)}
    for config in claim["spec"]["devices"].get("config") or ():
        named = config.get("requests") or []
        if not named or known & set(named):
            requests = {"requests": named} if named and len(named) < everybody else {}
            yield {"source": "FromClaim", **requests, "opaque": config["opaque"]}


def _class_of(chosen: ChosenDevice) -> str:
    return str(chosen.request.device_class["metadata"]["name"])
