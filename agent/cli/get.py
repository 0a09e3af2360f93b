"""`muster get`: what the agent tells of the fleet in the cluster, one list of objects for each table.

Nothing but the objects' own JSON is looked at, so that a call takes a moment and the rights of `muster-view`.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from agent.cli import exits
from agent.cli.get_rows import (
    ClusterLook,
    Row,
    claim_rows,
    layout_rows,
    node_rows,
    pool_rows,
    queue_rows,
    shortage_rows,
    sync_rows,
    team_rows,
    workload_rows,
)
from agent.cli.standing_pods import GPU
from agent.cli.tables import TextTable, render, table_width
from model.plain_text import age
from providers.kube.config import connect
from providers.kube.errors import Forbidden, KubeError, NotFound
from providers.kube.transport import KubeTransport


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


def show(what: str, names: Sequence[str], place: tuple[Path | None, str | None, str], output: str) -> int:
    """Print one table; the exit code. `place` is a kubeconfig, a context and a namespace."""
    kubeconfig, context, namespace = place
    table = TABLES[what]
    try:
        transport = KubeTransport(connect("", kubeconfig, context))
        look = ClusterLook(transport, namespace, datetime.now(UTC).timestamp())
        rows = list(table.rows(look))
    except Forbidden as error:
        narrower = ("whoever sees a namespace alone asks for it: -n NAMESPACE",)
        exits.complain(error, *(narrower if what == "workloads" and not namespace else ()))
        return exits.ERROR
    except KubeError as error:
        absent = "Muster is not installed on this cluster: " if isinstance(error, NotFound) else ""
        exits.complain(f"{absent}{error}")
        return exits.ERROR
    exits.complain(*look.unseen)
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
    return render(TextTable(columns, shown, table.cut, table.dropped), 0 if output == "wide" else table_width())


def _words(column: str, row: Row) -> str:
    """A value as people read it: ages, money, amounts; `-` for none."""
    key, words = _WORDS.get(column, (column, _plainly))
    value = row[key]
    return "-" if value is None or value in ("", {}, []) else words(value)


def _plainly(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _amounts(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{amount} {name.removeprefix(GPU)}" for name, amount in value.items())


def _used_of_total(value: Mapping[str, Mapping[str, int]]) -> str:
    return ", ".join(f"{it['used']}/{it['total']} {name.removeprefix(GPU)}" for name, it in value.items())


def _used_of_quota(value: Iterable[Mapping[str, Any]]) -> str:
    used = sorted((it for it in value if it["used"] != 0 or it["quota"] != 0), key=lambda it: it["used"] == 0)
    each = [f"{it['used']}/{it['quota']} {it['resource'].removeprefix(GPU)} of {it['flavor']}" for it in used]
    return "; ".join(each) or "-"


_WORDS: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "age": ("age_s", age),
    "wait": ("wait_s", age),
    "usd/h": ("usd_h", "{:,.2f}".format),
    "asks": ("gpus", _amounts),
    "in use": ("gpus", _used_of_total),
    "other pods": ("other_pods", _plainly),
    "slices": ("gpus", _amounts),
    "cut into": ("slices", str),
    "usage": ("usage", _used_of_quota),
}
"""Columns whose values programs read under another name, or which people read otherwise."""


TABLES: Final[Mapping[str, GetTable]] = {
    "workloads": GetTable(
        "workload",
        workload_rows,
        ("name", "queue", "pods", "state", "reason", "machines", "wait", "age"),
        ("asks", "priority", "evictions", "kind", "active", "message"),
        cut=("reason", "queue"),
        dropped=("machines", "pods", "age", "queue"),
        aliases=("workload", "gangs", "gang"),
    ),
    "nodes": GetTable(
        "node",
        node_rows,
        ("name", "pool", "state", "in use", "gangs", "usd/h"),
        ("type", "zone", "capacity", "claim", "layout", "other pods", "happened"),
        cut=("gangs", "pool", "in use"),
        dropped=("usd/h", "pool"),
        aliases=("node",),
    ),
    "queues": GetTable(
        "queue",
        queue_rows,
        ("name", "team", "pending", "reserving", "admitted", "active", "usage"),
        ("flavors", "stop", "message"),
        cut=("usage", "team"),
        dropped=("reserving", "team"),
        aliases=("queue",),
    ),
    "teams": GetTable(
        "team",
        team_rows,
        ("name", "flavor", "resource", "used", "guaranteed", "borrowed"),
        ("queues", "pending", "admitted"),
        cut=("flavor", "resource"),
        aliases=("team",),
    ),
    "pools": GetTable(
        "pool",
        pool_rows,
        ("name", "nodes", "ready", "limit", "gpus", "cut into", "usd/h", "short"),
        ("healthy", "weight", "drifted", "message"),
        cut=("cut into",),
        dropped=("short", "limit"),
        aliases=("pool", "nodepools", "nodepool"),
    ),
    "claims": GetTable(
        "claim",
        claim_rows,
        ("name", "pool", "type", "capacity", "state", "usd/h", "age"),
        ("zone", "leaving", "instance", "node", "reservation", "layout", "purpose", "message"),
        cut=("pool",),
        dropped=("pool", "capacity", "age"),
        aliases=("claim", "nodeclaims", "nodeclaim", "machines"),
    ),
    "layouts": GetTable(
        "layout",
        layout_rows,
        ("name", "machines", "ready", "slices", "pools"),
        ("configurations",),
        cut=("slices", "pools"),
        dropped=("pools",),
        aliases=("layout", "miglayouts"),
    ),
    "shortages": GetTable(
        "shortage", shortage_rows, ("name", "type", "zone", "capacity", "until"), aliases=("shortage",)
    ),
    "syncs": GetTable(
        "sync",
        sync_rows,
        ("name", "ready", "reason", "suspended", "done", "revision"),
        ("observed", "message"),
        cut=("revision",),
        aliases=("sync", "fleetsync", "fleetsyncs"),
    ),
}
"""What can be got, in the order in which it is offered."""
