"""`muster get`: what the agent tells of the fleet in the cluster, one list of objects for each table.

Nothing but the objects' own JSON is looked at, so that a call takes a moment and the rights of `muster-view`.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from agent.cli import exits
from agent.cli.tables import TextTable, render, terminal_width
from model.plain_text import age
from model.quantity import canonical_amount, devices_in_sight, format_amount
from providers.kube.config import connect
from providers.kube.errors import Forbidden, KubeError, NotFound
from providers.kube.resources import FLEET_SYNCS, NODE_CLAIMS, NODE_POOLS, QUEUES, WORKLOADS, ResourcePath
from providers.kube.transport import KubeTransport

Row = dict[str, Any]
_GPU: Final = "nvidia.com/"


@dataclass(frozen=True, slots=True)
class GetTable:
    """One table of `muster get`: its rows, and which of their values are columns, for how wide a terminal."""

    title: str
    rows: Callable[["ClusterLook"], Iterable[Row]]
    columns: tuple[str, ...]
    wide: tuple[str, ...] = ()
    """Further columns of `-o wide`."""
    cut: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


class ClusterLook:
    """The objects of a cluster as JSON says them; one namespace of it where one is named."""

    def __init__(self, transport: KubeTransport, namespace: str, now_s: float) -> None:
        self._transport, self._namespace, self.now_s = transport, namespace, now_s

    def objects(self, resource: ResourcePath) -> Iterator[Mapping[str, Any]]:
        """Every object, in order of namespace and name. Raises `KubeError`."""
        namespace = self._namespace if resource.namespaced else ""
        pages = self._transport.list_pages(resource, namespace)
        found = [msgspec.json.decode(raw) for page in pages for raw in page.items or ()]
        yield from sorted(found, key=lambda it: (it["metadata"].get("namespace", ""), it["metadata"]["name"]))

    def since_s(self, instant: str | None) -> int | None:
        """Whole seconds since an instant, of clocks that differ 0 at least; None where there is none."""
        return max(0, int(self.now_s - datetime.fromisoformat(instant).timestamp())) if instant else None


def show(what: str, names: Sequence[str], place: tuple[Path | None, str | None, str], output: str) -> int:
    """Print one table; the exit code. `place` is a kubeconfig, a context and a namespace."""
    kubeconfig, context, namespace = place
    table = TABLES[what]
    try:
        transport = KubeTransport(connect("", kubeconfig, context))
        rows = list(table.rows(ClusterLook(transport, namespace, datetime.now(UTC).timestamp())))
    except Forbidden as error:
        narrower = ("whoever sees a namespace alone asks for it: -n NAMESPACE",)
        exits.complain(error, *(narrower if what == "workloads" and not namespace else ()))
        return exits.ERROR
    except KubeError as error:
        absent = "Muster is not installed on this cluster: " if isinstance(error, NotFound) else ""
        exits.complain(f"{absent}{error}")
        return exits.ERROR
    if missing := [f"no {table.title} {name!r}" for name in names if not any(_is(row, name) for row in rows)]:
        exits.complain(*missing)
    rows = [row for row in rows if not names or any(_is(row, name) for name in names)]
    sys.stdout.write(_written(table, rows, output) + "\n")
    return exits.ERROR if missing else exits.OK


def _is(row: Row, name: str) -> bool:
    """Whether somebody means this row: by the whole name, or without its namespace."""
    return bool(name in {row["name"], row["name"].rpartition("/")[2]})


def _written(table: GetTable, rows: list[Row], output: str) -> str:
    if output == "json":
        return json.dumps(rows, indent=2)
    if output == "yaml":
        import yaml

        return str(yaml.dump(rows, Dumper=yaml.CSafeDumper, sort_keys=False)).rstrip("\n")
    columns = (*table.columns, *table.wide) if output == "wide" else table.columns
    shown = [{column: _words(column, row) for column in columns} for row in rows]
    return render(TextTable(columns, shown, table.cut, table.dropped), 0 if output == "wide" else terminal_width())


def _words(column: str, row: Row) -> str:
    """A value as people read it: ages, money, amounts; `-` for none."""
    key, words = _WORDS.get(column, (column, _plainly))
    value = row[key]
    return "-" if value is None or value in ("", {}, []) else words(value)


def _plainly(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _amounts(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{amount} {name.removeprefix(_GPU)}" for name, amount in value.items())


def _used_of_total(value: Mapping[str, Mapping[str, int]]) -> str:
    return ", ".join(f"{it['used']}/{it['total']} {name.removeprefix(_GPU)}" for name, it in value.items())


def _used_of_quota(value: Iterable[Mapping[str, Any]]) -> str:
    used = sorted((it for it in value if it["used"] != 0 or it["quota"] != 0), key=lambda it: it["used"] == 0)
    each = [f"{it['used']}/{it['quota']} {it['resource'].removeprefix(_GPU)} of {it['flavor']}" for it in used]
    return "; ".join(each) or "-"


_WORDS: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "age": ("age_s", age),
    "wait": ("wait_s", age),
    "usd/h": ("usd_h", "{:,.2f}".format),
    "asks": ("gpus", _amounts),
    "in use": ("gpus", _used_of_total),
    "slices": ("gpus", _amounts),
    "cut into": ("slices", str),
    "usage": ("usage", _used_of_quota),
}
"""Columns whose values programs read under another name, or which people read otherwise."""


# -- rows -------------------------------------------------------------------------------------------------------------


def _workloads(look: ClusterLook) -> Iterator[Row]:
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
        for name, amount in _gpu_part(pods.get("requests") or {}).items():
            asked[name] += amount * pods["count"]
    return dict(sorted(asked.items()))


def _gpu_part(resources: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(amount) for name, amount in resources.items() if name.startswith(_GPU)}


def _claims(look: ClusterLook) -> Iterator[Row]:
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


def _nodes(look: ClusterLook) -> Iterator[Row]:
    """Machines that have joined, with the GPUs that gangs have of each."""
    used, gangs = dict[str, Counter[str]](), dict[str, list[str]]()
    for it in look.objects(WORKLOADS):
        spec = it["spec"]
        asked = {pods["name"]: _gpu_part(pods.get("requests") or {}) for pods in spec["podSets"]}
        for pin in (it.get("status") or {}).get("pins") or ():
            node = pin.get("node", "")
            gangs.setdefault(node, []).append(f"{it['metadata']['namespace']}/{spec['job']['name']}")
            for name, amount in asked.get(pin["podSet"], {}).items():
                used.setdefault(node, Counter())[name] += amount * pin["count"]
    for claim in _claims(look):
        if node := claim["node"]:
            taken = used.get(node, Counter())
            total = devices_in_sight(claim["layout"], _gpu_part(claim["resources"]), taken)
            yield {
                "name": node,
                "pool": claim["pool"],
                "type": claim["type"],
                "state": claim["state"],
                "gpus": {name: {"used": taken[name], "total": total[name]} for name in total},
                "gangs": sorted(set(gangs.get(node, ()))),
                "usd_h": claim["usd_h"],
                "zone": claim["zone"],
                "capacity": claim["capacity"],
                "claim": claim["name"],
                "layout": claim["layout"],
                "happened": claim["happened"],
            }


def _queues(look: ClusterLook) -> Iterator[Row]:
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


def _teams(look: ClusterLook) -> Iterator[Row]:
    """Teams as their queues tell of them: one row for each flavor and resource that they have quota of or use."""
    by_team: dict[str, list[Row]] = {}
    for queue in _queues(look):
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


def _pools(look: ClusterLook) -> Iterator[Row]:
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


def _layouts(look: ClusterLook) -> Iterator[Row]:
    """Layouts that pools may cut their GPUs by, with the machines that have each."""
    pools: dict[str, list[str]] = {}
    for pool in look.objects(NODE_POOLS):
        for name in ((pool["spec"].get("sharing") or {}).get("mig") or {}).get("layouts") or ():
            pools.setdefault(name, []).append(pool["metadata"]["name"])
    cut: dict[str, list[Row]] = {name: [] for name in pools}
    for claim in _claims(look):
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


def _shortages(look: ClusterLook) -> Iterator[Row]:
    for pool in _pools(look):
        for short in pool["shortages"]:
            yield {
                "name": pool["name"],
                "type": short["instanceType"],
                "zone": short["zone"],
                "capacity": short["capacityType"],
                "until": short["until"],
            }


def _syncs(look: ClusterLook) -> Iterator[Row]:
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


TABLES: Final[Mapping[str, GetTable]] = {
    "workloads": GetTable(
        "workload",
        _workloads,
        ("name", "queue", "pods", "state", "reason", "machines", "wait", "age"),
        ("asks", "priority", "evictions", "kind", "active", "message"),
        cut=("reason", "queue"),
        dropped=("machines", "pods", "age", "queue"),
        aliases=("workload", "gangs", "gang"),
    ),
    "nodes": GetTable(
        "node",
        _nodes,
        ("name", "pool", "state", "in use", "gangs", "usd/h"),
        ("type", "zone", "capacity", "claim", "layout", "happened"),
        cut=("gangs", "pool", "in use"),
        dropped=("usd/h", "pool"),
        aliases=("node",),
    ),
    "queues": GetTable(
        "queue",
        _queues,
        ("name", "team", "pending", "reserving", "admitted", "active", "usage"),
        ("flavors", "stop", "message"),
        cut=("usage", "team"),
        dropped=("reserving", "team"),
        aliases=("queue",),
    ),
    "teams": GetTable(
        "team",
        _teams,
        ("name", "flavor", "resource", "used", "guaranteed", "borrowed"),
        ("queues", "pending", "admitted"),
        cut=("flavor", "resource"),
        aliases=("team",),
    ),
    "pools": GetTable(
        "pool",
        _pools,
        ("name", "nodes", "ready", "limit", "gpus", "cut into", "usd/h", "short"),
        ("healthy", "weight", "drifted", "message"),
        cut=("cut into",),
        dropped=("short", "limit"),
        aliases=("pool", "nodepools", "nodepool"),
    ),
    "claims": GetTable(
        "claim",
        _claims,
        ("name", "pool", "type", "capacity", "state", "usd/h", "age"),
        ("zone", "leaving", "instance", "node", "reservation", "layout", "purpose", "message"),
        cut=("pool",),
        dropped=("pool", "capacity", "age"),
        aliases=("claim", "nodeclaims", "nodeclaim", "machines"),
    ),
    "layouts": GetTable(
        "layout",
        _layouts,
        ("name", "machines", "ready", "slices", "pools"),
        ("configurations",),
        cut=("slices", "pools"),
        dropped=("pools",),
        aliases=("layout", "miglayouts"),
    ),
    "shortages": GetTable("shortage", _shortages, ("name", "type", "zone", "capacity", "until"), aliases=("shortage",)),
    "syncs": GetTable(
        "sync",
        _syncs,
        ("name", "ready", "reason", "suspended", "done", "revision"),
        ("observed", "message"),
        cut=("revision",),
        aliases=("sync", "fleetsync", "fleetsyncs"),
    ),
}
"""What can be got, in the order in which it is offered."""
