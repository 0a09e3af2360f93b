"""Everything at once, typed into the sandbox: a Deployment, a StatefulSet, a notebook and a gang; then less of it."""

import json
import shutil
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.sandbox.repository import git
from tests.e2e.test_sandbox import Sandbox

WITHIN_S = 120.0
MANIFESTS = Path(__file__).with_name("everything.yaml")
POOL = Path(__file__).with_name("pool_for_pods.yaml")
ZONE = "topology.kubernetes.io/zone"


def kubectl(sandbox: Sandbox, *words: str) -> str:
    command = ["kubectl", "--kubeconfig", str(sandbox.kubeconfig), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def listed(sandbox: Sandbox, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(kubectl(sandbox, "get", kind, "-n", "apps", "-o", "json"))["items"]
    return found


def running(sandbox: Sandbox) -> dict[str, str]:
    """Pod that runs -> its node."""
    pods = listed(sandbox, "pods")
    return {it["metadata"]["name"]: it["spec"]["nodeName"] for it in pods if it["status"].get("phase") == "Running"}


def usd_h(sandbox: Sandbox) -> float:
    """What the machines that are there cost."""
    return sum(float(it["spec"]["usdPerHour"]) for it in listed(sandbox, "nodeclaims.muster.dev"))


def launches(sandbox: Sandbox) -> int:
    """How many machines were ever bought."""
    cloud = sandbox.said.read_text().split("muster-sim")[0].split()[-1]
    with urllib.request.urlopen(f"{cloud}muster-sim/ledger", timeout=10) as answer:
        return len(json.load(answer))


def until(holds: Callable[[], Any], words: Callable[[], str]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, words()
        time.sleep(0.3)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_everything_at_once_is_bought_once_runs_is_explained_and_given_back(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "sandbox")
    try:
        _served(sandbox)
        kubectl(sandbox, "create", "namespace", "apps")
        kubectl(sandbox, "apply", "-f", str(MANIFESTS))
        until(lambda: len(running(sandbox)) == 18, lambda: kubectl(sandbox, "get", "pods,nodeclaims", "-A"))
        _stands_as_asked(sandbox)
        bought = launches(sandbox)
        assert bought <= 15, "a machine for each pod of the Deployment, the notebook, and each pod of the gang"
        _is_explained(sandbox)
        _costs_less_when_there_is_less(sandbox)
        # One more may be on its way when all run, as kube-scheduler puts pods on the gang's machines as well.
        assert launches(sandbox) <= bought + 1, "nothing is bought twice"
    finally:
        sandbox.process.terminate()
        sandbox.process.wait(30)


def _served(sandbox: Sandbox) -> None:
    clone = sandbox.folder / "fleet"
    shutil.copy(POOL, clone / "general.yaml")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "A pool that serves pods")
    git(clone, "push", "--quiet", "origin", "main")
    until(lambda: "general" in kubectl(sandbox, "get", "nodepools.muster.dev"), sandbox.said.read_text)


def _stands_as_asked(sandbox: Sandbox) -> None:
    zones = {it["metadata"]["name"]: it["metadata"]["labels"][ZONE] for it in listed(sandbox, "nodes")}
    web = [node for pod, node in running(sandbox).items() if pod.startswith("web-")]
    assert len(set(web)) == 12, "anti-affinity: a host each"
    assert set(Counter(zones[node] for node in web).values()) == {4}, "spread over three zones"


def _is_explained(sandbox: Sandbox) -> None:
    fleet = str(sandbox.folder / "fleet")
    for name, pods in (("web", 12), ("db", 3), ("notebook", 1)):
        told = sandbox.muster("explain", "pod", f"apps/{name}", "--fleet", fleet)
        assert told.count("stands on: ip-") == pods, told
    assert "all 2 pods are ready" in sandbox.muster("explain", "workload", "apps/train")


def _costs_less_when_there_is_less(sandbox: Sandbox) -> None:
    before = usd_h(sandbox)
    kubectl(sandbox, "-n", "apps", "scale", "deployment/web", "--replicas", "3")
    kubectl(sandbox, "-n", "apps", "scale", "statefulset/db", "--replicas", "1")
    kubectl(sandbox, "-n", "apps", "delete", "job", "train")
    left = {"web": 3, "db": 1, "notebook": 1}

    def settled() -> bool:
        found = Counter(name.partition("-")[0] for name in running(sandbox))
        few = len(listed(sandbox, "nodeclaims.muster.dev")) <= 4  # the last may go a moment after the bill has halved
        return found == left and usd_h(sandbox) < before / 2 and few

    until(settled, lambda: kubectl(sandbox, "get", "pods,nodeclaims", "-A"))
