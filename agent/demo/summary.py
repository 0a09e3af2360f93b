"""The tables at the end: gangs with their waiting times, machines bought and returned, cost by team."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent.cli.tables import TextTable
from providers.sim.machines import LedgerEntry


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The journal's lines; one cut short by a kill is left out."""
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entries.append(json.loads(line))
        except ValueError:
            continue
    return entries


def gangs(journal: Iterable[Mapping[str, Any]]) -> TextTable:
    """First wait, evictions and how each gang ended."""
    queued: dict[str, Mapping[str, Any]] = {}
    admitted: dict[str, float] = {}
    evictions: dict[str, list[str]] = {}
    last: dict[str, str] = {}
    for entry in journal:
        name = entry.get("gang", "")
        if entry["event"] == "queued":
            queued.setdefault(name, entry)
        elif entry["event"] == "gang":
            if entry["state"] == "Admitted":
                admitted.setdefault(name, entry["at_s"])
            if entry["state"] == "Evicting":
                evictions.setdefault(name, []).append(entry["reason"])
            last[name] = f"{entry['state']} ({entry['reason']})"
    rows = [
        {
            "gang": name,
            "queue": entry["queue"],
            "priority": entry["priority"],
            "first wait": f"{admitted[name] - entry['at_s']:.1f} s" if name in admitted else "-",
            "evictions": ", ".join(evictions.get(name, [])) or "-",
            "last state": last.get(name, "-"),
        }
        for name, entry in queued.items()
    ]
    return TextTable(("gang", "queue", "priority", "first wait", "evictions", "last state"), rows)


def machines(ledger: Iterable[LedgerEntry]) -> TextTable:
    """Machines bought and returned by type, zone and capacity type, from the cloud's own books."""
    groups: dict[tuple[str, str, str], list[LedgerEntry]] = {}
    for entry in ledger:
        pool = entry.pool
        groups.setdefault((pool.instance_type, pool.zone, pool.capacity_type), []).append(entry)
    rows = [
        {
            "type": key[0],
            "zone": key[1],
            "capacity": key[2],
            "bought": len(entries),
            "returned": sum(1 for entry in entries if entry.ended_at_s is not None),
            "machine-minutes": f"{sum((e.ended_at_s or e.launched_at_s) - e.launched_at_s for e in entries) / 60:.1f}",
            "usd": f"{sum(entry.cost_usd for entry in entries):.2f}",
        }
        for key, entries in sorted(groups.items())
    ]
    return TextTable(("type", "zone", "capacity", "bought", "returned", "machine-minutes", "usd"), rows)


def costs(books: Mapping[str, Any]) -> TextTable:
    """What each team has spent, and what stood idle; the parts add up to the bill."""
    total = books["total"] or 1
    rows = [
        {"team": team, "usd": f"{amount / 1e6:.2f}", "share": f"{100 * amount / total:.0f} %"}
        for team, amount in sorted(books["by_team"].items(), key=lambda entry: (-entry[1], entry[0]))
    ]
    rows.append({"team": "total", "usd": f"{books['total'] / 1e6:.2f}", "share": "100 %"})
    return TextTable(("team", "usd", "share"), rows)
