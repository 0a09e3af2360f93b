"""What upstream's round of disruption leaves, reckoned from the words of a row: pods, and the price of machines.

A row does not always name what goes and what comes: then it counts as the dearest machines that may have gone, and the
cheapest that may have come, so that upstream is taken to be no dearer than it was.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.conformance.karpenter.catalogs import amounts
from tests.conformance.karpenter.manifests import Given

RESERVED_PRICE = 1e-7
"""What a reserved machine costs of the list price, upstream and here."""
_NOT_MOVED = frozenset({"DaemonSet", "Node"})
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class UpstreamAnswer:
    """What upstream makes of a row."""

    placed: int
    """Pods of the row that run."""
    cost_usd_h: float | None
    """None where the row says nothing by which it could be told."""
    none_allowed: bool = False
    """Whether more pods than these would break a rule of the row."""


def after_a_round(given: Given, expect: Given, types: Mapping[str, Given]) -> UpstreamAnswer:
    """The pods that run, and what the machines cost that are left."""
    pods = [pod for node in given["nodes"] for pod in node.get("pods", ()) if _moves(pod)]
    managed = [it for it in given["nodes"] if it.get("managed", True)]
    left = _left(managed, expect, types)
    kept = sum(_price(it, types) for it in left)
    gone = [pod for node in managed if node not in left for pod in node.get("pods", ())]
    return UpstreamAnswer(len(pods), kept + _launched(expect, types, gone))


def _moves(pod: Given) -> bool:
    daemon = pod.get("mirror") or pod.get("owner") in _NOT_MOVED
    return not (daemon or pod.get("terminal") or pod.get("phase") in _ENDED)


def _left(managed: Sequence[Given], expect: Given, types: Mapping[str, Given]) -> list[Given]:
    if isinstance(expect.get("terminated"), list):
        return [it for it in managed if it["name"] not in expect["terminated"]]
    count = expect.get("terminated_count", 0 if expect.get("action") == "none" else expect.get("commands", 0))
    return sorted(managed, key=lambda it: _price(it, types))[: len(managed) - count]


def _price(node: Given, types: Mapping[str, Given]) -> float:
    offers = types[node["instance_type"]]["offerings"]
    where = node["zone"], node["capacity_type"]
    return float(next(it["price"] for it in offers if (it["zone"], it["capacity_type"]) == where))


def _launched(expect: Given, types: Mapping[str, Given], gone: Sequence[Given]) -> float:
    """What the machines cost that come: named, or so many of the cheapest type that holds the largest pod."""
    told = expect.get("launched", 0)
    if not isinstance(told, int):
        return sum(_cheapest([types[name]], expect) for name in told)
    named = expect.get("launch_instance_types_exactly") or _one(expect.get("launch_instance_type"))
    able = [types[name] for name in named] if named else [it for it in types.values() if _may_come(it, expect, gone)]
    return told * _cheapest(able, expect) if told else 0.0


def _one(name: str | None) -> list[str]:
    return [] if name is None else [name]


def _may_come(machine: Given, expect: Given, gone: Iterable[Given]) -> bool:
    room = {word: amount - machine.get("overhead", {}).get(word, 0) for word, amount in machine["capacity"].items()}
    holds = all(amounts(room).get(name, 0) >= it for pod in gone for name, it in amounts(_numbers(pod)).items())
    return holds and machine["name"] not in expect.get("launch_must_not_include", ())


def _numbers(pod: Given) -> dict[str, int]:
    return {word: pod[word] for word in ("cpu_m", "memory_bytes") if word in pod}


def _cheapest(machines: Iterable[Given], expect: Given) -> float:
    """The least price of an offer that the row allows."""
    wanted = expect.get("launch_capacity_type")
    prices = [
        it["price"]
        for machine in machines
        for it in machine["offerings"]
        if it.get("available", True)
        and wanted in {None, "reserved", it["capacity_type"]}
        and expect.get("launch_zone", it["zone"]) == it["zone"]
    ]
    return float(min(prices)) * (RESERVED_PRICE if wanted == "reserved" else 1.0)
