"""Readings of GPUs, typed into the sandbox: a real scrape, its explanation, and a machine replaced for an XID."""

import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from agent.demo.jobs import job
from agent.sandbox.repository import git
from tests.e2e.test_ordinary_pods import kubectl, until
from tests.e2e.test_sandbox import Sandbox

NOTES = {"sim.muster.dev/gpu-active": "0.1", "sim.muster.dev/gpu-memory-mib": "4000"}
REPAIR = '  repair: [{condition: GpuFailed, statuses: ["True"], after: 2s}]\n'


def claims(sandbox: Sandbox) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(kubectl(sandbox, "get", "nodeclaims.muster.dev", "-o", "json"))["items"]
    return found


def addresses(sandbox: Sandbox) -> tuple[str, str]:
    """Of the cloud's controls and of the agent."""
    said = sandbox.said.read_text()
    cloud, agent = re.search(r"http://\S+/muster-sim", said), re.search(r"Agent: +(http://[^/ ]+)", said)
    assert cloud is not None
    assert agent is not None
    return cloud[0], agent[1]


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_what_gpus_do_is_read_and_a_machine_with_a_bad_one_goes(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "sandbox")
    try:
        cloud, agent = addresses(sandbox)
        _bears_little(sandbox)
        work = job("low", "research", "normal", pods=1, requests={"nvidia.com/gpu": "8"})
        work["spec"]["template"].setdefault("metadata", {})["annotations"] = NOTES
        manifest = tmp_path / "low.json"
        manifest.write_text(json.dumps(work), encoding="utf-8")
        kubectl(sandbox, "apply", "-f", str(manifest))

        def explained() -> str:
            try:
                return sandbox.muster("explain", "workload", "low", "-n", "research", "--agent", agent)
            except subprocess.CalledProcessError as error:  # asked before the agent has seen the job
                return str(error.stderr)

        until(lambda: "enough:   1 of 8 GPUs a pod would be enough" in explained(), explained)
        assert "uses:     10 % of 8 x NVIDIA H100-80GB-HBM3, memory 3.9 of 80.0 GiB at most of each" in explained()
        assert "1 of 8 GPUs a pod" in sandbox.muster("gpus", "advise", "--agent", agent)
        (claim,) = claims(sandbox)
        body = json.dumps({"node": claim["status"]["node"], "gpu": 3, "xid": 79}).encode()
        request = urllib.request.Request(f"{cloud}/gpu", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10):
            pass
        name = claim["metadata"]["name"]
        until(lambda: "NodeFailures" in kubectl(sandbox, "get", "events", "-A"), lambda: str(claims(sandbox)))
        until(lambda: [it["metadata"]["name"] for it in claims(sandbox)] not in ([name], []), explained)
        until(lambda: "all its pods" in explained() or "its pod is ready" in explained(), explained)
        assert "XID 79" in kubectl(sandbox, "get", "events", "-A")
    finally:
        sandbox.process.terminate()
        sandbox.process.wait(30)


def _bears_little(sandbox: Sandbox) -> None:
    clone = sandbox.folder / "fleet"
    pools = clone / "pools.yaml"
    text = pools.read_text(encoding="utf-8")
    pools.write_text(text.replace("  limits: {nodes: 8, usdPerHour: 500}\n", f"  limits: {{nodes: 8}}\n{REPAIR}", 1))
    git(clone, "commit", "--quiet", "--all", "--message", "Bear a bad GPU for two seconds")
    git(clone, "push", "--quiet", "origin", "main")
    until(lambda: "GpuFailed" in kubectl(sandbox, "get", "nodepools.muster.dev", "-o", "json"), lambda: "")
