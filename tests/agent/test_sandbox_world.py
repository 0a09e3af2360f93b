"""The world of the sandbox, without its sockets: what an API server forgets by itself goes there as well."""

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.cli import exits
from agent.cli.app import app
from agent.sandbox.world import SandboxWorld
from providers.clock import VirtualClock


@pytest.mark.parametrize("command", [["sandbox"], ["demo"]])
def test_a_folder_in_use_is_refused_before_anything_is_written(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is another sandbox's, which may be running: its kubeconfig names the ports that this one listens on."""
    monkeypatch.setattr("signal.signal", lambda *_: None)  # those of pytest stay
    (tmp_path / "kubeconfig").write_text("another sandbox's")
    said = CliRunner().invoke(app, [*command, "--dir", str(tmp_path)], catch_exceptions=False)
    assert said.exit_code == exits.ERROR
    assert "is not empty; give a folder that no sandbox has used" in said.stderr
    assert {path.name: path.read_text() for path in tmp_path.rglob("*")} == {"kubeconfig": "another sandbox's"}


def test_events_of_the_sandbox_live_for_an_hour(tmp_path: Path) -> None:
    clock = VirtualClock()
    world = SandboxWorld(tmp_path, cluster="test", speed=1.0, clock=clock)
    events = world.store.resource("events", "")
    world.store.create(world.store.resource("Namespace"), {"metadata": {"name": "t"}})
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "t"}
    meta = {"name": "p.1", "namespace": "t"}
    world.store.create(events, {"metadata": meta, "involvedObject": about, "reason": "Scheduled"}, namespace="t")
    kernel = world.simulation.kernel
    left = []
    for minutes in (0, 50, 70):
        clock.advance_to(clock.now() + minutes * 60)
        kernel.run_until_quiet()
        left.append([it["metadata"]["name"] for it in world.store.list(events)])
    assert left == [["p.1"], ["p.1"], []]


QUEUED = {"muster.dev/queue": "prod"}
TEMPLATE = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.mark.parametrize("labels", [QUEUED, {}])
def test_the_policies_of_a_real_cluster_hold_work_that_names_a_queue(tmp_path: Path, labels: dict[str, str]) -> None:
    """They are those of `deploy/`: whatever names no queue is left as it is."""
    with SandboxWorld(tmp_path, cluster="test", speed=60.0) as world:
        store = world.store
        meta = {"name": "w", "labels": labels}
        spec = {"selector": {"matchLabels": {"app": "w"}}, "template": TEMPLATE}
        made = store.create(store.resource("Deployment"), {"metadata": meta, "spec": spec}, namespace="prod")
        assert made["spec"]["template"]["metadata"]["labels"] == {"app": "w", **labels}
        job = {"metadata": meta, "spec": {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}}
        assert store.create(store.resource("Job"), job, namespace="prod")["spec"]["suspend"] is bool(labels)
        pod = store.create(store.resource("Pod"), {"metadata": meta, "spec": TEMPLATE["spec"]}, namespace="prod")
        gates = [{"name": "muster.dev/placement"}] if labels else None
        assert pod["spec"].get("schedulingGates") == gates


def test_every_shipped_policy_is_installed_and_bound(tmp_path: Path) -> None:
    with SandboxWorld(tmp_path, cluster="test", speed=60.0) as world:
        kinds = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
        policies, bindings = (
            [it["metadata"]["name"] for it in world.store.list(world.store.resource(k))] for k in kinds
        )
        assert policies == bindings
        assert {"muster-suspend", "muster-queue-templates", "muster-gate-pods"} < set(policies)


@pytest.mark.parametrize(
    ("route", "body", "said"),
    [
        ("mig", {"node": "nobody", "hang": True}, "no node 'nobody'"),
        ("mig", {"node": "nobody", "melt": True}, "relabel, not node, melt"),
        ("dra", {"node": "nobody", "fail": 1}, "no node 'nobody'"),
    ],
)
def test_faults_of_gpus_are_caused_where_those_of_the_cloud_are(
    tmp_path: Path, route: str, body: dict[str, object], said: str
) -> None:
    with SandboxWorld(tmp_path, cluster="test", speed=60.0) as world:
        url, kind = f"{world.cloud.url}/muster-sim/{route}", {"Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(body).encode(), kind)
        with pytest.raises(urllib.error.HTTPError) as refused, urllib.request.urlopen(request, timeout=10):
            pass
        with refused.value as answer:
            assert said in json.loads(answer.read())["error"]
            assert answer.code == 400
