"""The real agent against an API server with 10,000 nodes and 100,000 pods: time from cold, memory, turns under churn.

Three processes: this one looks, a second serves the cluster, the third is the agent (reflectors, mirror, brain, board,
HTTP face) with a real git repository. Only EC2 is made up: its machines are listed from a table. The AWS clients are
built all the same, so that the memory is what a production agent has.
"""

import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench import cluster

CHURN_S, EVENTS_PER_S = 60.0, 100
REGION = cluster.REGION
_READY_WITHIN_S = 120.0
_TURNS = "muster_turn_duration_seconds"


def run(churn_s: float = CHURN_S, size: cluster.ClusterSize = cluster.FULL) -> dict[str, float]:
    """Seconds until mirrored and decided once, MiB then and after churn, milliseconds a turn and CPU under churn."""
    folder = Path(tempfile.mkdtemp(prefix="muster-bench-"))
    context = multiprocessing.get_context("spawn")
    now_s = time.time()
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(theirs, now_s, size), daemon=True)
    server.start()
    try:
        url, fill_s = _received(ours)
        port = _free_port()
        agent = context.Process(target=_run_agent, args=(folder, url, port, now_s, size), daemon=True)
        began_s = time.perf_counter()
        agent.start()
        try:
            return {"filled_s": fill_s, **_watched(agent, ours, port, began_s, churn_s)}
        finally:
            agent.terminate()
            agent.join(10)
            agent.kill()
    finally:
        server.terminate()
        server.join(10)
        shutil.rmtree(folder, ignore_errors=True)


def _watched(agent: Any, server: Connection, port: int, began_s: float, churn_s: float) -> dict[str, float]:
    while _get(port, "/readyz") is None:
        if time.perf_counter() - began_s > _READY_WITHIN_S or not agent.is_alive():
            raise TimeoutError("the agent did not become ready")
        time.sleep(0.05)
    ready_s, ready_cpu_s = time.perf_counter() - began_s, _cpu_s(agent.pid)
    time.sleep(3.0)  # the heap is settled and everything is published once
    results = {
        "mirrored_s": ready_s,
        "mirrored_cpu_s": ready_cpu_s,
        "rss_mib": _memory(agent.pid, "VmRSS"),
        "peak_rss_mib": _memory(agent.pid, "VmHWM"),
    }
    before, cpu_s, at_s = _metrics(port), _cpu_s(agent.pid), time.perf_counter()
    server.send(churn_s)
    events_per_s = _received(server, churn_s + 30)
    after, spent_s = _metrics(port), time.perf_counter() - at_s
    if after["actions"]:
        raise RuntimeError(f"nothing was to be done, but the agent took {after['actions']:.0f} actions")
    return {
        **results,
        "churn_events_per_s": events_per_s,
        "churn_rss_mib": _memory(agent.pid, "VmRSS"),
        "churn_turn_ms": 1000 * (after["sum"] - before["sum"]) / max(1.0, after["count"] - before["count"]),
        "churn_turns_per_s": (after["count"] - before["count"]) / spent_s,
        "churn_cpu_percent": 100 * (_cpu_s(agent.pid) - cpu_s) / spent_s,
    }


def _received(pipe: Connection, timeout_s: float = 120.0) -> Any:
    if not pipe.poll(timeout_s):
        raise TimeoutError("the API server's process does not answer")
    return pipe.recv()


def _get(port: int, path: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return None


def _metrics(port: int) -> dict[str, float]:
    text = _get(port, "/metrics") or ""
    found = {}
    for key in ("sum", "count"):
        found[key] = sum(map(float, re.findall(rf"^{_TURNS}_{key} (\S+)$", text, re.MULTILINE)))
    done = re.findall(r"^muster_actions_total\{[^}]*\} (\S+)$", text, re.MULTILINE)
    return {**found, "actions": sum(map(float, done))}


def _memory(pid: int, field: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found.group(1)) / 1024 if found else 0.0


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    from agent.sandbox.command import free_port

    return free_port()


# -- the agent's process ----------------------------------------------------------------------------------------------


class _Standing:
    """A cloud whose machines are there and stay."""

    def __init__(self, machines: Sequence[Any], catalog: Any) -> None:
        self._machines = machines
        self._catalog = catalog

    def catalog(self) -> Any:
        return self._catalog

    refresh = catalog

    def instances(self) -> Sequence[Any]:
        return list(self._machines)

    def reservations(self) -> Sequence[Any]:
        return ()

    def spot_history(self, _pools: Any, _begin_s: float, _end_s: float) -> Any:
        return {}

    def resolve(self, births: Sequence[Any]) -> Any:
        return {birth.pool_hash: cluster.resolved(birth.kinds) for birth in births}

    def launch(self, request: Any) -> Any:
        raise AssertionError(f"nothing is to be bought: {request}")

    def terminate(self, instance_ids: Sequence[str]) -> None:
        raise AssertionError(f"nothing is to be given back: {instance_ids}")

    def tag(self, instance_id: str, tags: dict[str, str]) -> None:
        raise AssertionError(f"nothing is to be tagged: {instance_id} {tags}")


def _run_agent(folder: Path, url: str, port: int, now_s: float, size: cluster.ClusterSize) -> None:
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    from agent.cli.run import open_source
    from agent.config import Settings
    from agent.logs import configure_logs
    from agent.process import Agent
    from agent.sandbox.repository import Repository
    from providers.aws.catalog import package_catalog
    from providers.aws.clients import connect as connect_aws
    from providers.clock import SystemClock
    from providers.kube.config import from_url
    from providers.kube.transport import KubeTransport

    configure_logs("console", level="WARNING")
    example = folder / "example"
    example.mkdir(parents=True)
    for name, text in cluster.FLEET.items():
        (example / name).write_text(text, encoding="utf-8")
    repository = Repository(folder)
    repository.create(example)
    repository.push("The fleet")
    settings = Settings.model_validate(
        {
            "cluster": "bench",
            "region": REGION,
            "source": {"url": str(repository.bare), "cacheDir": str(folder / "cache")},
            "http": {"host": "127.0.0.1", "port": port},
            "leaderElection": False,
        }
    )
    clock = SystemClock()
    _clients = connect_aws(REGION, endpoint_url="http://127.0.0.1:9")
    cloud = _Standing(cluster.instances(now_s, size), package_catalog(REGION).catalog)
    transport = KubeTransport(from_url(url))
    Agent(settings, transport, cloud, open_source(settings, clock), clock=clock).run()


# -- the API server's process -----------------------------------------------------------------------------------------


def _serve(pipe: Connection, now_s: float, size: cluster.ClusterSize) -> None:
    """Fill a store as a restore from a backup would, past admission; serve it; change pods when told to."""
    import gc

    from providers.clock import SystemClock
    from providers.kube.objects.crds import definitions
    from providers.sim.apiserver import ApiServer
    from providers.sim.store import Store

    gc.disable()
    began_s = time.perf_counter()
    store = Store(SystemClock(), event_log_capacity=20_000)
    for definition in definitions():
        store.create(store.resource("CustomResourceDefinition"), definition)
    pods: list[tuple[str, str]] = []

    def put(kind: str, body: cluster.Object) -> cluster.Object:
        meta = body["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        if kind == "Pod":
            pods.append(key)
        uid = f"{kind.lower()}-{key[0]}-{key[1]}"
        stored = {**body, "metadata": {**meta, "uid": uid}}
        return store._ledger.put(store.resource(kind), key, stored).obj

    cluster.fill(put, now_s, size)
    gc.freeze()
    with ApiServer(store) as api:
        pipe.send((api.url, time.perf_counter() - began_s))
        while True:
            try:
                pipe.send(_churn(store, pods, pipe.recv()))
            except EOFError:
                return


def _of_gang(pod: Any) -> bool:
    return "muster.dev/workload" in (pod["metadata"].get("labels") or {})


def _churn(store: Any, pods: list[tuple[str, str]], seconds: float) -> float:
    """Pods become unready and ready again, `EVENTS_PER_S` changes a second; how many a second it came to."""
    resource, ended = store.resource("Pod"), threading.Event()
    pods = [key for key in pods if not _of_gang(store.get(resource, key[1], key[0]))]  # theirs would be decisions
    began_s, count = time.perf_counter(), 0
    while (elapsed_s := time.perf_counter() - began_s) < seconds:
        while count < elapsed_s * EVENTS_PER_S:
            key = pods[count * 7919 % len(pods)]
            pod = store.get(resource, key[1], key[0])
            conditions = [
                {**held, "status": "False" if held["status"] == "True" else "True"} if held["type"] == "Ready" else held
                for held in pod["status"]["conditions"]
            ]
            changed = {**pod, "metadata": {**pod["metadata"]}, "status": {**pod["status"], "conditions": conditions}}
            with store._lock:
                store._ledger.put(resource, key, changed)
            count += 1
        ended.wait(0.01)
    return count / (time.perf_counter() - began_s)


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else CHURN_S
    for label, value in run(seconds).items():
        print(f"{label:24} {value:12,.1f}")
