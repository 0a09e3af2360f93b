"""Rows of `muster get`: what the objects of a cluster say, as values; nothing but their own JSON is looked at."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from agent.cli.standing_pods import STANDING, PodSeen, claimed_gpus, decode_pod, gpu_part
from model.quantity import canonical_amount, devices_in_sight, format_amount
from providers.kube.errors import Forbidden, NotFound
from providers.kube.resources import (
    FLEET_SYNCS,
    NODE_CLAIMS,
    NODE_POOLS,
    PODS,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    WORKLOADS,
    ResourcePath,
)
from providers.kube.transport import KubeTransport

Row = dict[str, Any]


class ClusterLook:
    """The objects of a cluster as JSON says them; one namespace of it where one is named."""

    def __init__(self, transport: KubeTransport, namespace: str, now_s: float) -> None:
        self._transport, self._namespace, self.now_s = transport, namespace, now_s
        self.unseen: list[str] = []
        """What could not be looked at, in words."""

    def objects(self, resource: ResourcePath) -> Iterator[Mapping[str, Any]]:
        """Every object, in order of namespace and name. Raises `KubeError`."""
        namespace = self._namespace if resource.namespaced else ""
        found = [msgspec.json.decode(raw) for raw in self._raws(resource, namespace)]
        yield from sorted(found, key=lambda it: (it["metadata"].get("namespace", ""), it["metadata"]["name"]))

    def standing_pods(self) -> Iterator[PodSeen]:
        """Every pod that stands on a node and has not ended; none for who may not list pods. Raises `KubeError`."""
        try:
            for page in self._transport.list_pages(PODS, self._namespace, field_selector=STANDING):
                yield from map(decode_pod, page.items or ())
        except Forbidden as error:
            self.unseen.append(f"IN USE is what gangs hold alone: {error}")

    def claimed_gpus(self) -> Mapping[str, Counter[str]]:
        """`namespace/name` of each ResourceClaim -> its GPUs; none for who may not list them. Raises `KubeError`."""
        try:
            return claimed_gpus(self._raws(RESOURCE_SLICES, ""), self._raws(RESOURCE_CLAIMS, self._namespace))
        except (Forbidden, NotFound) as error:
            self.unseen.append(f"IN USE lacks devices that pods of no gang claim: {error}")
            return {}

    def _raws(self, resource: ResourcePath, namespace: str) -> Iterator[Any]:
        return (raw for page in self._transport.list_pages(resource, namespace) for raw in page.items or ())

    def since_s(self, instant: str | None) -> int | None:
        """Whole seconds since an instant, of clocks that differ 0 at least; None where there is none."""
        return max(0, int(self.now_s - datetime.fromisoformat(instant).timestamp())) if instant else None


def workload_rows(look: ClusterLook) -> Iterator[Row]:
    """Yields gangs, who waits first."""
    for it in sorted(look.objects(WORKLOADS), key=lambda it: (_order(it), it["spec"].get("createdAt", ""))):
        spec, status = it["spec"], it.get("status") or {}
        yield {
            "name": f"{it['metadata']['namespace']}/{spec['job']['name']}",
            "queue": spec["queue"],
            "priority": spec.get("priority", 0),
            "pods": sum(pods["count"] for pods in spec["podSets"]),
            "gpus": _gpus(spec["podSets"]),
            "state": status.get("state", "Pending"),
            "reason": status.get("reason", ""),
            "machines": len({pin.get("node") or pin.get("claim") for pin in status.get("pins") or ()}),
            "wait_s": look.since_s(status.get("waitingSince")),
            "evictions": status.get("evictions", 0),
            "age_s": look.since_s(spec.get("createdAt") or it["metadata"]["creationTimestamp"]),
            "kind": spec["job"]["kind"],
            "active": spec.get("active", True),
            "message": status.get("message", ""),
        }


GANG_STATES: Final = ("Pending", "QuotaReserved", "Admitted", "Evicting", "Finished")
"""Of gangs (`GangState`), who waits first."""


def _order(workload: Mapping[str, Any]) -> int:
    return GANG_STATES.index((workload.get("status") or {}).get("state", "Pending"))


def _gpus(pod_sets: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """GPUs and slices that all pods ask for."""
    asked: Counter[str] = Counter()
    for pods in pod_sets:
        for name, amount in gpu_part(pods.get("requests") or {}).items():
            asked[name] += amount * pods["count"]
    return dict(sorted(asked.items()))


def claim_rows(look: ClusterLook) -> Iterator[Row]:
    """Yields machines from their purchase on."""
    for it in look.objects(NODE_CLAIMS):
        spec, status = it["spec"], it.get("status") or {}
        leaves, ending = status.get("disruption") or {}, it["metadata"].get("deletionTimestamp")
        state = "Recutting" if status.get("cut") and status.get("readyAt") else status.get("state", "Pending")
        yield {
            "name": it["metadata"]["name"],
            "pool": spec["nodePool"],
            "type": spec["instanceType"],
            "zone": spec["zone"],
            "capacity": status.get("capacityType") or spec["capacityType"],
            "state": "Leaving" if leaves and not ending else state,
            "happened": "; ".join(f"{one['what']}: {one['message']}" for one in (status.get("history") or ())[-1:]),
            "usd_h": _charged(spec, status),
            "leaving": leaves.get("reason", ""),
            "age_s": look.since_s(spec.get("createdAt") or it["metadata"]["creationTimestamp"]),
            "instance": status.get("instanceId", ""),
            "node": status.get("node", ""),
            "reservation": status.get("reservation") or spec.get("reservation", ""),
            "layout": status.get("layout") or spec.get("layout", ""),
            "resources": status.get("resources") or spec.get("resources") or {},
            "purpose": spec.get("purpose", ""),
            "message": leaves.get("message", ""),
        }


def _charged(spec: Mapping[str, Any], status: Mapping[str, Any]) -> float:
    """What its users pay: what it turned out to be, or what was to be bought."""
    places = (status, spec) if "usdPerHour" in status else (spec,)
    return float(next(it[key] for it in places for key in ("chargedUsdPerHour", "usdPerHour") if key in it))


def _of_other_pods(look: ClusterLook) -> tuple[dict[str, Counter[str]], dict[str, list[str]]]:
    """Node -> GPUs that pods of no gang have of it, asked for or claimed, and who they are.

    What several of them share is counted once, and what a gang's pods claim is told by its Workload.
    """
    used, others = dict[str, Counter[str]](), dict[str, list[str]]()
    pods = list(look.standing_pods())
    counted = {claim for pod in pods if pod.of_gang for claim in pod.claims}
    ordinary = [pod for pod in pods if not pod.of_gang]
    claimed = look.claimed_gpus() if any(pod.claims for pod in ordinary) else {}
    for pod in ordinary:
        asked, claims = pod.gpus, [it for it in pod.claims if claimed.get(it)]
        if asked or claims:
            others.setdefault(pod.spec.node_name, []).append(pod.key)
            for part in (asked, *(claimed[it] for it in claims if it not in counted)):
                used.setdefault(pod.spec.node_name, Counter()).update(part)
            counted.update(claims)
    return used, others


def node_rows(look: ClusterLook) -> Iterator[Row]:
    """Machines that have joined, with the GPUs that gangs and pods of no gang have of each."""
    gangs = dict[str, list[str]]()
    used, others = _of_other_pods(look)
    for it in look.objects(WORKLOADS):
        spec = it["spec"]
        asked = {pods["name"]: gpu_part(pods.get("requests") or {}) for pods in spec["podSets"]}
        for pin in (it.get("status") or {}).get("pins") or ():
            node = pin.get("node", "")
            gangs.setdefault(node, []).append(f"{it['metadata']['namespace']}/{spec['job']['name']}")
            for name, amount in asked.get(pin["podSet"], {}).items():
                used.setdefault(node, Counter())[name] += amount * pin["count"]
    for claim in claim_rows(look):
        if node := claim["node"]:
            taken = used.get(node, Counter())
            total = devices_in_sight(claim["layout"], gpu_part(claim["resources"]), taken)
            yield {
                "name": node,
                "pool": claim["pool"],
                "type": claim["type"],
                "state": claim["state"],
                "gpus": {name: {"used": taken[name], "total": total[name]} for name in total},
                "gangs": sorted(set(gangs.get(node, ()))),
                "other_pods": sorted(others.get(node, ())),
                "usd_h": claim["usd_h"],
                "zone": claim["zone"],
                "capacity": claim["capacity"],
                "claim": claim["name"],
                "layout": claim["layout"],
                "happened": claim["happened"],
            }


def queue_rows(look: ClusterLook) -> Iterator[Row]:
    """Yields queues, with what each uses of its quota."""
    for it in look.objects(QUEUES):
        spec, status = it["spec"], it.get("status") or {}
        usage = status.get("usage") or []
        yield {
            "name": it["metadata"]["name"],
            "team": spec["team"],
            "pending": status.get("pending", 0),
            "reserving": status.get("reserving", 0),
            "admitted": status.get("admitted", 0),
            "active": _holds(status, "Active"),
            "usage": [it | {key: _number(it[key]) for key in ("quota", "used", "borrowed")} for it in usage],
            "flavors": spec.get("flavors") or [],
            "stop": spec.get("stopPolicy", ""),
            "message": _finding(status, "Active").get("message", ""),
        }


def _finding(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((it for it in status.get("conditions") or () if it["type"] == kind), {})


def _holds(status: Mapping[str, Any], kind: str) -> bool | None:
    return {"True": True, "False": False}.get(_finding(status, kind).get("status", ""))


def team_rows(look: ClusterLook) -> Iterator[Row]:
    """Teams as their queues tell of them: one row for each flavor and resource that they have quota of or use."""
    by_team: dict[str, list[Row]] = {}
    for queue in queue_rows(look):
        by_team.setdefault(queue["team"], []).append(queue)
    for team, queues in sorted(by_team.items()):
        cells: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for usage in (it for queue in queues for it in queue["usage"]):
            cells.setdefault((usage["flavor"], usage["resource"]), []).append(usage)
        for (flavor, resource), told in sorted(cells.items()):
            yield {
                "name": team,
                "queues": [queue["name"] for queue in queues],
                "flavor": flavor,
                "resource": resource,
                "used": _sum(resource, (it["used"] for it in told)),
                "guaranteed": told[0]["quota"],
                "borrowed": told[0]["borrowed"],
                "pending": sum(queue["pending"] for queue in queues),
                "admitted": sum(queue["admitted"] for queue in queues),
            }


def _number(quantity: str) -> int | str:
    """A count as a number; another quantity as Kubernetes writes it."""
    return int(quantity) if quantity.isdigit() else quantity


def _sum(resource: str, quantities: Iterable[int | str]) -> int | str:
    return _number(format_amount(resource, sum(canonical_amount(resource, it) for it in quantities)))


def pool_rows(look: ClusterLook) -> Iterator[Row]:
    """Yields pools, with what the agent tells of each."""
    for it in look.objects(NODE_POOLS):
        spec, status = it["spec"], it.get("status") or {}
        limits = status.get("limits") or {}
        yield {
            "name": it["metadata"]["name"],
            "nodes": status.get("nodes", 0),
            "ready": status.get("ready", 0),
            "limit": limits.get("nodes"),
            "gpus": status.get("gpus", 0),
            "slices": status.get("slices", ""),
            "usd_h": status.get("usdPerHour", 0.0),
            "short": len(status.get("shortages") or ()),
            "healthy": _holds(status, "NodeRegistrationHealthy"),
            "weight": spec.get("weight", 0),
            "limits": limits,
            "shortages": status.get("shortages") or [],
            "drifted": sum(each["nodes"] for each in status.get("drifted") or ()),
            "message": _finding(status, "Ready").get("message", ""),
        }


def layout_rows(look: ClusterLook) -> Iterator[Row]:
    """Layouts that pools may cut their GPUs by, with the machines that have each."""
    pools: dict[str, list[str]] = {}
    for pool in look.objects(NODE_POOLS):
        for name in ((pool["spec"].get("sharing") or {}).get("mig") or {}).get("layouts") or ():
            pools.setdefault(name, []).append(pool["metadata"]["name"])
    cut: dict[str, list[Row]] = {name: [] for name in pools}
    for claim in claim_rows(look):
        if claim["layout"]:
            cut.setdefault(claim["layout"].rpartition("-")[0], []).append(claim)
    for name, claims in sorted(cut.items()):
        yield {
            "name": name,
            "pools": pools.get(name, []),
            "machines": len(claims),
            "ready": sum(claim["state"] == "Ready" for claim in claims),
            "gpus": _gpus([{"count": 1, "requests": claim["resources"]} for claim in claims]),
            "configurations": sorted({claim["layout"] for claim in claims}),
        }


def shortage_rows(look: ClusterLook) -> Iterator[Row]:
    """Yields what pools cannot buy for a while."""
    for pool in pool_rows(look):
        for short in pool["shortages"]:
            yield {
                "name": pool["name"],
                "type": short["instanceType"],
                "zone": short["zone"],
                "capacity": short["capacityType"],
                "until": short["until"],
            }


def sync_rows(look: ClusterLook) -> Iterator[Row]:
    """Yields repositories, and which revision of each is in force."""
    for it in look.objects(FLEET_SYNCS):
        status = it.get("status") or {}
        ready = _finding(status, "Ready")
        yield {
            "name": it["metadata"]["name"],
            "ready": _holds(status, "Ready"),
            "reason": ready.get("reason", ""),
            "revision": status.get("appliedRevision", ""),
            "suspended": bool((it.get("spec") or {}).get("suspend")),
            "done": _holds(status, "Done"),
            "observed": status.get("observedRevision", ""),
            "message": ready.get("message", ""),
        }
