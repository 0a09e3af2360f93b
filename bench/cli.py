"""The command line from cold: whole processes, from exec to exit, as the one who types it waits for them.

Goals: `--help` under 150 ms, `validate` under 400 ms and 300 ms of CPU, and 250 ms of CPU for all others, but for those
that ask the deciders themselves (`plan`, and what is asked of files). The fastest of nine counts: whatever else the
machine does only adds.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import yaml

from agent.http import status_listener
from agent.sandbox.world import SandboxWorld
from agent.web.access import OpenGate
from agent.web.pages import Pages
from agent.web.seen import PageWatcher
from agent.web.server import WebPages
from bench import cluster, validate
from bench.decisions import DecisionWorld
from bench.web import Healthy
from fleet.cost.records import HOUR_S, LedgerRecord
from providers.kube.objects.crds import NAMES, text_of
from providers.store.sqlite import SqliteLedger

ROUNDS = 9
_PAUSE_S = 1.5
"""Whoever asks an agent more often is told to come again: the page has a share of its time."""
_MONTH_S = datetime(2026, 9, 1, tzinfo=UTC).timestamp()
_REPOSITORY = Path(__file__).resolve().parents[1]


def run() -> dict[str, float]:
    """Milliseconds of `--help`, of `validate` on the reference example and on 300 documents, and of python."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        for name, content in validate.repository().items():
            (Path(folder) / name).write_bytes(content)
        muster = _muster()
        return {
            "python_ms": _fastest_ms([sys.executable, "-c", "pass"]),
            "help_ms": _fastest_ms([*muster, "--help"]),
            "version_ms": _fastest_ms([*muster, "version"]),
            "validate_reference_ms": _fastest_ms([*muster, "validate", str(_REPOSITORY / "examples" / "reference")]),
            "validate_300_ms": _fastest_ms([*muster, "validate", folder]),
            **_of_files(muster),
            **_of_an_agent(muster),
            **_of_a_cluster(muster, Path(folder)),
            **_of_a_ledger(muster, Path(folder) / "ledger.db"),
        }


def _of_a_ledger(muster: Sequence[str], path: Path) -> dict[str, float]:
    """Milliseconds of CPU of a month of twenty machines that three gangs share, 43,200 records in SQLite."""
    ledger = SqliteLedger(path)
    for hour in range(30 * 24):
        ledger.append([_record(hour, machine, gang) for machine in range(20) for gang in range(3)])
    ledger.close()
    settings = path.with_name("muster.yaml")
    source = {"url": "https://git.example.com/fleet.git"}
    told = {"cluster": "c", "region": "us-east-1", "source": source, "ledger": {"path": str(path)}}
    settings.write_text(yaml.safe_dump(told), encoding="utf-8")
    ways = {"": ("--ledger", str(path)), "_of_settings": ("--config", str(settings))}
    return {
        f"{name}{way}_cpu_ms": _least_cpu_ms([*muster, name, "--month", "2026-09", *where])
        for name in ("cost", "report")
        for way, where in ways.items()
    }


def _record(hour: int, machine: int, gang: int) -> LedgerRecord:
    whose = f"g{gang}-{machine}-{hour // 10}", f"t{gang}", False, f"g{gang}", f"ns{gang}", "q", "u"
    what = "pool", "p5.48xlarge", "us-east-1a", "on-demand", "", "h100", "2 nvidia.com/gpu"
    amounts = 3600.0, 7200.0, 20_000_000, 0.0, 0, 80.0
    return LedgerRecord("c", f"i-{machine}", _MONTH_S + hour * HOUR_S, *whose, *what, *amounts, "list", _MONTH_S)


TABLES = ("workloads", "nodes", "queues", "teams", "pools", "claims", "layouts", "shortages", "syncs")


def _of_files(muster: Sequence[str]) -> dict[str, float]:
    """Milliseconds of CPU of commands that read a fleet's files; the last two load the deciders, or run them.

    The queue is started already: the fleet is read once more where its declaration is edited.
    """
    place = _REPOSITORY / "examples" / "reference"
    commands = {
        "validate": ("validate", place),
        "policy_test": ("policy", "test", place),
        "start_queue": ("start", "queue", "research", "--fleet", place),
        "schema": ("schema", "NodePool"),
        "offers_of_files": ("offers", "--gpu", "h100", "--fleet", place),
        "plan": ("plan", place, "--from", "HEAD", "--to", "HEAD"),
    }
    return {f"{name}_cpu_ms": _least_cpu_ms([*muster, *map(str, it)]) for name, it in commands.items()}


def _of_an_agent(muster: Sequence[str]) -> dict[str, float]:
    """Milliseconds of CPU of commands that ask an agent with 200 machines; its own are not counted."""
    world = DecisionWorld(cluster.ClusterSize(nodes=200, gangs=10))
    world.brain.turn()
    fleet, snapshot = world.sync.fleet, world.mirror.snapshot(world.clock.now(), frozenset())
    if fleet is None:
        raise RuntimeError(f"no fleet is in force: {world.sync.state.message}")
    watcher = PageWatcher()
    watcher.turned(fleet, snapshot)
    page = WebPages(Pages(watcher), OpenGate())
    listener = status_listener(Healthy(), "127.0.0.1", 0, page=page.answer)
    listener.start()
    gang = next(it.name for it in snapshot.gangs.values())
    commands = {
        "explain_workload": ("explain", "workload", gang),
        "explain_node": ("explain", "node", next(iter(snapshot.claims))),
        "explain_pool": ("explain", "pool", next(iter(fleet.node_pools))),
        "offers": ("offers", "--gpu", "h100"),
        "gpus_advise": ("gpus", "advise"),
    }
    try:
        agent = ("--agent", f"http://127.0.0.1:{listener.port}")
        asked = {name: [*muster, *command, *agent] for name, command in commands.items()}
        return {f"{name}_cpu_ms": _least_cpu_ms(command, pause_s=_PAUSE_S) for name, command in asked.items()}
    finally:
        listener.stop()


def _of_a_cluster(muster: Sequence[str], folder: Path) -> dict[str, float]:
    """Milliseconds of CPU of commands that ask an API server with the example fleet of the sandbox."""
    with SandboxWorld(folder / "world", cluster="bench", speed=100.0) as world:
        for plural in NAMES:
            world.store.create(world.store.resource("CustomResourceDefinition"), yaml.safe_load(text_of(plural)))
        where = ["--kubeconfig", str(world.kubeconfig)]
        return {
            "version_cpu_ms": _least_cpu_ms([*muster, "--version"]),
            "help_cpu_ms": _least_cpu_ms([*muster, "get", "-h"]),
            **{f"get_{name}_cpu_ms": _least_cpu_ms([*muster, "get", name, *where]) for name in TABLES},
        }


def _least_cpu_ms(command: Sequence[str], pause_s: float = 0.0) -> float:
    return 1000 * min(_cpu_s(command, pause_s) for _ in range(ROUNDS))


def _cpu_s(command: Sequence[str], pause_s: float) -> float:
    time.sleep(pause_s)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=_REPOSITORY, env=_as_installed())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _as_installed() -> dict[str, str]:
    """The environment, in which modules are compiled once, and no agent is known."""
    return {
        name: value for name, value in os.environ.items() if name not in {"PYTHONDONTWRITEBYTECODE", "MUSTER_AGENT"}
    }


def _muster() -> list[str]:
    """The console script of this installation, else the module."""
    script = Path(sys.executable).parent / "muster"
    return [str(script)] if script.exists() else [sys.executable, "-m", "agent"]


def _fastest_ms(command: Sequence[str]) -> float:
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=_REPOSITORY, env=_as_installed())
        taken.append(time.perf_counter() - began)
    return 1000 * min(taken)


if __name__ == "__main__":
    for label, value in run().items():
        print(f"{label:24} {value:12,.1f}")
