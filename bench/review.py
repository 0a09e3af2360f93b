"""From a pull request to its comment and status: 1,000 machines and 250 gangs, git push, webhook, forge, real HTTP.

Four processes' work in three: this one has repository and forge and looks, a second serves the cluster, the third is
the agent. The reviewer polls so rarely that only the webhook can be what brings the news.

Goal: under 2 s from the request's opening until both comment and status stand.
"""

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import cluster
from bench.agent import REGION, _free_port, _get, _received, _serve, _Standing

REQUESTS = 5
SIZE = cluster.ClusterSize(nodes=1_000, gangs=250, nodes_a_gang=2)
_SECRET = "bench-webhook"
_WITHIN_S = 120.0
_POOL = """apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {{name: bench}}
spec:
  instanceTypes: [m7i.4xlarge]
  limits: {{nodes: {nodes}}}
"""


def run(size: cluster.ClusterSize = SIZE, requests: int = REQUESTS) -> dict[str, float]:
    """Milliseconds from the opening of a request until comment and status stand: median, worst; from a push to it."""
    from agent.sandbox.forge import SandboxForge
    from agent.sandbox.repository import Repository
    from providers.clock import SystemClock

    context, now_s = multiprocessing.get_context("spawn"), time.time()
    with ExitStack() as open_:
        folder = Path(
            open_.enter_context(tempfile.TemporaryDirectory(prefix="muster-bench-", ignore_cleanup_errors=True))
        )
        ours, theirs = context.Pipe()
        server = context.Process(target=_serve, args=(theirs, now_s, size), daemon=True)
        server.start()
        open_.callback(_ended, server)
        url, _ = _received(ours)
        repository = _repository(Repository(folder), folder)
        port, hook = _free_port(), _free_port()
        forge = SandboxForge(folder, repository.bare, SystemClock(), f"http://127.0.0.1:{hook}/webhook", _SECRET)
        open_.enter_context(forge)
        repository.notify(forge.url)
        repository.push("The fleet")
        review = {**forge.review, "pollIntervalS": 3600.0}
        arguments = (folder, repository.bare, url, (port, hook), review, now_s, size)
        agent = context.Process(target=_run_agent, args=arguments, daemon=True)
        agent.start()
        open_.callback(_ended, agent)
        _until(lambda: _get(port, "/readyz") is not None, "the agent is ready")
        time.sleep(3.0)  # the heap is settled and everything is published once
        opened, pushed = [], []
        for number in range(1, requests + 1):
            opened.append(_answered(repository, forge.state, number, 2 * number))
            pushed.append(_answered(repository, forge.state, number, 2 * number + 1))
    return {
        "opened_to_comment_and_status_ms": statistics.median(opened),
        "opened_to_comment_and_status_worst_ms": max(opened),
        "pushed_to_comment_and_status_ms": statistics.median(pushed),
    }


def _repository(repository: Any, folder: Path) -> Any:
    example = folder / "example"
    example.mkdir()
    for name, text in cluster.FLEET.items():
        (example / name).write_text(text, encoding="utf-8")
    repository.create(example)
    return repository


def _answered(repository: Any, state: Any, number: int, nodes: int) -> float:
    """Pushes to the branch of a request, which opens it at first; milliseconds until comment and status are of that."""
    repository.write({"bench.yaml": _POOL.format(nodes=nodes)})
    head = repository.push(f"{nodes} nodes", f"change-{number}")

    def stands() -> bool:
        said = [it.body for it in list(state.comments.values()) if it.number == number]
        return any(f"head={head} " in it for it in said) and bool(state.latest_checks(head))

    _until(stands, f"request {number} is answered")
    (comment,) = [it for it in state.comments.values() if it.number == number]
    (check,) = state.latest_checks(head).values()
    answered_s = max(comment.updated_at_s, check.started_at_s)
    return float(1000 * (answered_s - state.requests[number].updated_at_s))


def _until(holds: Callable[[], bool], words: str) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_WITHIN_S:.0f} s: {words}")
        time.sleep(0.01)


def _ended(process: Any) -> None:
    process.terminate()
    process.join(10)
    process.kill()


def _run_agent(
    folder: Path,
    bare: Path,
    url: str,
    ports: tuple[int, int],
    review: dict[str, object],
    now_s: float,
    size: cluster.ClusterSize,
) -> None:
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    os.environ["MUSTER_WEBHOOK_SECRET"] = _SECRET
    from agent.cli.run import open_source
    from agent.config import Settings
    from agent.logs import configure_logs
    from agent.process import Agent
    from agent.review.opening import review_ports
    from providers.aws.catalog import package_catalog
    from providers.clock import SystemClock
    from providers.kube.config import from_url
    from providers.kube.transport import KubeTransport

    configure_logs("console", level="WARNING")
    said = {
        "cluster": "bench",
        "region": REGION,
        "source": {"url": str(bare), "cacheDir": str(folder / "cache")},
        "http": {"host": "127.0.0.1", "port": ports[0]},
        "webhook": {
            "host": "127.0.0.1",
            "port": ports[1],
            "secretEnv": "MUSTER_WEBHOOK_SECRET",
            "requestsPerMinute": 0,
        },
        "review": review,
        "leaderElection": False,
    }
    settings, clock = Settings.model_validate(said), SystemClock()
    cloud = _Standing(cluster.instances(now_s, size), package_catalog(REGION).catalog)
    source, ports_of_review = open_source(settings, clock), review_ports(settings, clock)
    Agent(settings, KubeTransport(from_url(url)), cloud, source, review=ports_of_review, clock=clock).run()


if __name__ == "__main__":
    for label, value in run().items():
        print(f"{label:40} {value:12,.1f}")
