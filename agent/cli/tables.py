"""`muster get`: what the agent knows, read from the cluster; tables for people, JSON for programs."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agent.cli import exits
from agent.world import open_cluster, read_world
from fleet.mig.layouts import gpu_part, layout_name
from fleet.snapshot import Catalog, Claim, GangState, Snapshot
from fleet.snapshot.lookups import machines_held
from model.plain_text import age, plain
from providers.clock import SystemClock
from providers.kube.errors import KubeError
from providers.kube.objects.paths import NODE_POOLS, QUEUES
from providers.kube.transport import KubeTransport


class TextTable(NamedTuple):
    """Rows of equal keys."""

    columns: tuple[str, ...]
    rows: list[dict[str, Any]]


def show(what: str, kubeconfig: Path | None, context: str | None, output: str) -> int:
    """Print one table; the exit code."""
    try:
        transport = open_cluster(kubeconfig, context)
        table = _TABLES[what](transport)
    except KubeError as error:
        exits.complain(error)
        return exits.ERROR
    if output == "json":
        sys.stdout.write(json.dumps(table.rows, indent=2) + "\n")
    else:
        sys.stdout.write(render(table) + "\n")
    return exits.OK


def render(table: TextTable) -> str:
    """Columns padded as kubectl does it."""
    if not table.rows:
        return "nothing to show"
    cells = [[column.upper() for column in table.columns]]
    cells += [[plain(str(row[column])) for column in table.columns] for row in table.rows]
    widths = [max(len(line[n]) for line in cells) for n in range(len(table.columns))]
    return "\n".join("   ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)


def world(transport: KubeTransport) -> Snapshot:
    """A look at the cluster, without prices."""
    return read_world(transport, SystemClock(), Catalog(), warn=exits.complain)


def workloads(transport: KubeTransport) -> TextTable:
    """Gangs, the waiting ones first."""
    snapshot = world(transport)
    rows = [
        {
            "name": gang.name,
            "queue": gang.queue,
            "priority": gang.effective_priority,
            "pods": sum(pod_set.count for pod_set in gang.pod_sets),
            "state": "Running" if gang.pods_ready and gang.state is GangState.ADMITTED else str(gang.state),
            "reason": str(gang.reason),
            "machines": len({pin.node or pin.claim for pin in gang.pins}),
            "evictions": gang.evictions,
            "age": age(snapshot.now_s - gang.created_at_s),
        }
        for gang in sorted(
            snapshot.gangs.values(), key=lambda g: (list(GangState).index(g.state), g.created_at_s, g.uid)
        )
    ]
    return TextTable(("name", "queue", "priority", "pods", "state", "reason", "machines", "evictions", "age"), rows)


def nodes(transport: KubeTransport) -> TextTable:
    """Machines that have joined, with the GPUs in use on each."""
    snapshot = world(transport)
    held = machines_held(snapshot)
    rows = []
    for claim in sorted(snapshot.claims.values(), key=lambda claim: claim.name):
        node = snapshot.nodes.get(claim.node)
        if node is None:
            continue
        gangs = held.get(claim.name, [])
        used: dict[str, int] = {}
        for gang in gangs:
            for pin in (pin for pin in gang.pins if pin.claim == claim.name):
                for resource, amount in gpu_part(gang.pod_set(pin.pod_set).requests).items():
                    used[resource] = used.get(resource, 0) + amount * pin.count
        gpus = [
            f"{used.get(name, 0)}/{total} {name.partition('/')[2]}"
            for name, total in gpu_part(node.allocatable).items()
        ]
        rows.append(
            {
                "name": node.name,
                "pool": claim.node_pool,
                "type": claim.capacity_pool.instance_type,
                "zone": claim.capacity_pool.zone,
                "capacity": _capacity(claim),
                "state": "Cutting" if claim.recut_at_s > claim.ready_at_s > 0 else str(claim.state),
                "cut": layout_name(claim.layout) or "-",
                "gpus": ", ".join(gpus) or "-",
                "gangs": ", ".join(gang.name for gang in gangs) or "-",
                "usd/h": f"{claim.charged_usd_h:.2f}",
            }
        )
    return TextTable(("name", "pool", "type", "zone", "capacity", "state", "cut", "gpus", "gangs", "usd/h"), rows)


def claims(transport: KubeTransport) -> TextTable:
    """Machines from intent to grave."""
    snapshot = world(transport)
    rows = [
        {
            "name": claim.name,
            "pool": claim.node_pool,
            "type": claim.capacity_pool.instance_type,
            "zone": claim.capacity_pool.zone,
            "capacity": _capacity(claim),
            "state": str(claim.state),
            "instance": claim.instance_id or "-",
            "node": claim.node or "-",
            "usd/h": f"{claim.charged_usd_h:.2f}",
            "leaves": f"{claim.disruption.reason}: {claim.disruption.message}" if claim.disruption else "-",
        }
        for claim in sorted(snapshot.claims.values(), key=lambda claim: claim.name)
    ]
    return TextTable(("name", "pool", "type", "zone", "capacity", "state", "instance", "node", "usd/h", "leaves"), rows)


def queues(transport: KubeTransport) -> TextTable:
    """Queues as the agent publishes them."""
    import msgspec

    rows = []
    for page in transport.list_pages(QUEUES):
        for raw in page.items or ():
            queue = msgspec.json.decode(raw)
            status = queue.get("status") or {}
            usage = [
                f"{u['used']}/{u['quota']} {u['resource'].partition('/')[2] or u['resource']} of {u['flavor']}"
                for u in status.get("usage") or ()
                if u["used"] != "0" or u["quota"] != "0"
            ]
            rows.append(
                {
                    "name": queue["metadata"]["name"],
                    "team": queue["spec"]["team"],
                    "pending": status.get("pending", 0),
                    "reserving": status.get("reserving", 0),
                    "admitted": status.get("admitted", 0),
                    "usage": "; ".join(usage) or "-",
                }
            )
    rows.sort(key=lambda row: row["name"])
    return TextTable(("name", "team", "pending", "reserving", "admitted", "usage"), rows)


def pools(transport: KubeTransport) -> TextTable:
    """Node pools as the agent publishes them: machines, GPUs, and what these are divided into."""
    import msgspec

    rows = []
    for page in transport.list_pages(NODE_POOLS):
        for raw in page.items or ():
            pool = msgspec.json.decode(raw)
            status = pool.get("status") or {}
            rows.append(
                {
                    "name": pool["metadata"]["name"],
                    "nodes": status.get("nodes", 0),
                    "ready": status.get("ready", 0),
                    "limit": (status.get("limits") or {}).get("nodes", "-"),
                    "gpus": status.get("gpus", 0),
                    "slices": status.get("slices") or "-",
                    "usd/h": f"{status.get('usdPerHour', 0.0):.2f}",
                }
            )
    rows.sort(key=lambda row: row["name"])
    return TextTable(("name", "nodes", "ready", "limit", "gpus", "slices", "usd/h"), rows)


_TABLES: Mapping[str, Callable[[KubeTransport], TextTable]] = {
    "workloads": workloads,
    "nodes": nodes,
    "queues": queues,
    "claims": claims,
    "pools": pools,
}


def _capacity(claim: Claim) -> str:
    where = claim.capacity_pool
    return f"{where.capacity_type} {where.reservation}" if where.reservation else where.capacity_type
