"""From `git push` to the plan on the cluster: the sandbox with its webhook, an agent of its own, real HTTP.

Goal: under 2 s until the FleetSync shows the pushed revision as attempted, with its plan.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

PUSHES = 7
_WITHIN_S = 30.0
_POOL = """apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {{name: bench}}
spec:
  instanceTypes: [m7i.4xlarge]
  limits: {{nodes: {nodes}}}
"""


def run() -> dict[str, float]:
    """Milliseconds of the push itself, and from its end and from its start until the plan is visible; and the worst."""
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    from agent.logs import configure_logs
    from agent.sandbox.command import sandboxed

    configure_logs("console", level="ERROR")
    pushed, visible, whole = [], [], []
    with (
        tempfile.TemporaryDirectory(prefix="muster-bench-") as folder,
        # The poll is so rare that only the webhook can be what brings the news.
        sandboxed(Path(folder), cluster="bench", speed=20.0, poll_s=600.0) as (world, repository, _, agent),
    ):
        first = repository.push("The example fleet")
        agent.start()
        agent.wait_healthy()
        _await_revision(world, first)
        for number in range(PUSHES):
            repository.write({"pools/bench.yaml": _POOL.format(nodes=number + 1)})
            began = time.perf_counter()
            commit = repository.push(f"Push {number}")
            ended = time.perf_counter()
            _await_revision(world, commit)
            shown = time.perf_counter()
            pushed.append(ended - began)
            visible.append(shown - ended)
            whole.append(shown - began)
    return {
        "push_ms": 1000 * statistics.median(pushed),
        "push_end_to_plan_ms": 1000 * statistics.median(visible),
        "push_start_to_plan_ms": 1000 * statistics.median(whole),
        "push_start_to_plan_worst_ms": 1000 * max(whole),
    }


def _await_revision(world: Any, commit: str) -> None:
    """Until the FleetSync shows that the commit was attempted and what its plan was."""
    deadline = time.monotonic() + _WITHIN_S
    while time.monotonic() < deadline:
        syncs = world.store.list(world.store.resource("FleetSync"))
        status = syncs[0].get("status") or {} if syncs else {}
        if commit in str(status.get("attemptedRevision", "")) and status.get("plan"):
            return
        time.sleep(0.005)
    raise TimeoutError(f"revision {commit} was not attempted within {_WITHIN_S:.0f} s: {status}")


if __name__ == "__main__":
    for label, value in run().items():
        print(f"{label:28} {value:12,.1f}")
