"""The stage: the sandbox seen through the `kubernetes` client, as any user of the cluster sees it."""

import hashlib
import hmac
import http.server
import json
import secrets
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlencode

from agent.config import BOOKS
from agent.demo.jobs import Manifest
from agent.outbox import SIGNATURE
from agent.sandbox.agent_process import AgentProcess
from agent.sandbox.forge import SandboxForge
from agent.sandbox.repository import Repository
from agent.sandbox.world import SandboxWorld
from model.labels import MIG_CONFIG
from providers.sim.machines import LedgerEntry
from providers.sim.store import StoreEvent

GROUP, VERSION = "muster.dev", "v1alpha1"


@dataclass(slots=True)
class Recorder:
    """Records when pods came and machines became ready, by the store's own log: polling might miss it."""

    pods: list[tuple[float, str, str]] = field(default_factory=list)
    """(instant, ADDED or DELETED, namespace/name)."""
    ready: dict[str, float] = field(default_factory=dict)
    """NodeClaim -> instant it became ready."""
    cuts: list[tuple[float, str, str]] = field(default_factory=list)
    """(instant, node, MIG configuration that its label asks for from then on)."""

    def hear(self, event: StoreEvent) -> None:
        """One committed write."""
        metadata = event.object["metadata"]
        if event.resource.kind == "Pod" and event.type != "MODIFIED":
            self.pods.append((time.time(), event.type, f"{metadata['namespace']}/{metadata['name']}"))
        elif event.resource.kind == "NodeClaim" and (event.object.get("status") or {}).get("state") == "Ready":
            self.ready.setdefault(metadata["name"], time.time())
        elif event.resource.kind == "Node":
            asked = (metadata.get("labels") or {}).get(MIG_CONFIG, "")
            self.cuts.append((time.time(), metadata["name"], asked))

    def births(self, prefix: str) -> list[float]:
        """Instants at which pods whose `namespace/name` begins so were created."""
        return [at for at, kind, name in self.pods if kind == "ADDED" and name.startswith(prefix)]

    def end(self, name: str) -> float:
        """Instant at which a pod was gone; 0 = it is not."""
        return next((at for at, kind, each in self.pods if kind == "DELETED" and each == name), 0.0)

    def cut_at(self, node: str, layout: str) -> float:
        """Instant at which a node was first asked to be cut to a layout; 0 = it was not."""
        return next((at for at, each, asked in self.cuts if each == node and asked.startswith(f"{layout}-")), 0.0)


class NewsHook:
    """A receiver of notifications on this machine: it keeps those that are signed with its key, as somebody's would."""

    address_env, key_env = "MUSTER_DEMO_HOOK", "MUSTER_DEMO_HOOK_KEY"

    def __init__(self) -> None:
        self.key = secrets.token_hex(16)
        self.heard: list[Mapping[str, Any]] = []
        self.unsigned = 0
        hook = self

        class HookHandler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                hook.hears(self.headers.get(SIGNATURE, ""), self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), HookHandler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/news"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def hears(self, signature: str, body: bytes) -> None:
        """Keeps what came, if its signature is that of its body."""
        right = "sha256=" + hmac.new(self.key.encode(), body, hashlib.sha256).hexdigest()
        if hmac.compare_digest(signature, right):
            self.heard.append(json.loads(body))
        else:
            self.unsigned += 1

    @property
    def sink(self) -> str:
        """Returns it as a line of `FleetPolicy.spec.notifications`."""
        return f"{{name: hook, addressEnv: {self.address_env}, secretEnv: {self.key_env}, severity: Info}}"

    def told(self, reason: str, about: str = "") -> Mapping[str, Any]:
        """Returns the last news with this reason of what is called so; empty if there was none."""
        found = (it for it in reversed(self.heard) if it["reason"] == reason and it["about"].endswith(about))
        return next(found, {})


class DemoStage:
    """Submits, looks and causes faults."""

    def __init__(
        self, world: SandboxWorld, repository: Repository, forge: SandboxForge, agent: AgentProcess, hook: NewsHook
    ) -> None:
        from kubernetes import client, config

        self.hook = hook
        self.world = world
        self.repository = repository
        self.forge = forge
        self.agent = agent
        self.recorder = Recorder()
        world.store.subscribe(self.recorder.hear)
        api = config.new_client_from_config(config_file=str(world.kubeconfig))
        self._custom = client.CustomObjectsApi(api)
        self._core = client.CoreV1Api(api)
        self._batch = client.BatchV1Api(api)

    # -- submitting -----------------------------------------------------------------------------------------------

    def submit(self, manifest: Manifest) -> None:
        """Create a Job or JobSet."""
        namespace = manifest["metadata"]["namespace"]
        if manifest["kind"] == "JobSet":
            self._custom.create_namespaced_custom_object("jobset.x-k8s.io", "v1alpha2", namespace, "jobsets", manifest)
        else:
            self._batch.create_namespaced_job(namespace, manifest)

    def delete(self, manifest: Manifest) -> None:
        """Delete a Job or JobSet with its pods."""
        name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
        if manifest["kind"] == "JobSet":
            self._custom.delete_namespaced_custom_object("jobset.x-k8s.io", "v1alpha2", namespace, "jobsets", name)
        else:
            self._batch.delete_namespaced_job(name, namespace, propagation_policy="Background")

    # -- looking --------------------------------------------------------------------------------------------------

    def sync(self) -> Mapping[str, Any]:
        """Status of the FleetSync; empty before there is one."""
        found = self._listed("fleetsyncs")
        return found[0].get("status") or {} if found else {}

    def claims(self) -> list[Mapping[str, Any]]:
        """All NodeClaims."""
        return self._listed("nodeclaims")

    def machines_of(self, pool: str) -> list[Mapping[str, Any]]:
        """The claims of a pool."""
        return [it for it in self.claims() if it["spec"].get("nodePool") == pool]

    def workload(self, job: str) -> Mapping[str, Any]:
        """Status of the Workload of a job; empty when there is none."""
        found = self._custom.list_cluster_custom_object(GROUP, VERSION, "workloads")["items"]
        return next((w.get("status") or {} for w in found if w["spec"]["job"]["name"] == job), {})

    def _listed(self, plural: str) -> list[Mapping[str, Any]]:
        from kubernetes.client.exceptions import ApiException

        try:
            items: list[Mapping[str, Any]] = self._custom.list_cluster_custom_object(GROUP, VERSION, plural)["items"]
        except ApiException as error:
            if error.status == 404:
                return []
            raise
        return items

    def running(self, job: str) -> bool:
        """Whether every pod of the job's gang is ready."""
        status = self.workload(job)
        return status.get("state") == "Admitted" and status.get("reason") == "PodsReady"

    def state(self, job: str) -> str:
        """State of the job's gang."""
        return str(self.workload(job).get("state", ""))

    def pods(self, namespace: str, prefix: str) -> list[Any]:
        """Pods whose name begins so."""
        return [p for p in self._core.list_namespaced_pod(namespace).items if p.metadata.name.startswith(prefix)]

    def nodes_of(self, job: str) -> set[str]:
        """Nodes the job's gang is pinned to."""
        return {pin["node"] for pin in self.workload(job).get("pins") or () if pin.get("node")}

    def node_labels(self, name: str) -> Mapping[str, str]:
        """Labels of a node."""
        return dict(self._core.read_node(name).metadata.labels)

    def node_count(self) -> int:
        """How many nodes have joined."""
        return len(self._core.list_node().items)

    def books(self) -> Mapping[str, Any]:
        """Returns what every team has spent, as the agent keeps it."""
        found = self._core.list_namespaced_config_map("muster-system").items
        kept = next((m for m in found if m.metadata.name == BOOKS), None)
        return json.loads(kept.data["books.json"]) if kept else {"total": 0, "by_team": {}}

    def ledger(self, *, instance_type: str = "", zone: str = "", running: bool | None = None) -> list[LedgerEntry]:
        """The cloud's own books: every machine ever launched."""
        return [
            entry
            for entry in self.world.cloud.ledger()
            if (not instance_type or entry.pool.instance_type == instance_type)
            and (not zone or entry.pool.zone == zone)
            and (running is None or (entry.ended_at_s is None) == running)
        ]

    def muster(self, *arguments: str) -> str:
        """Output of a `muster` command, run as a person would."""
        done = subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-m", "agent", *arguments], capture_output=True, text=True, check=False, timeout=60
        )
        return done.stdout + done.stderr

    # -- pull requests --------------------------------------------------------------------------------------------

    def comment(self, number: int) -> str:
        """What the agent says of a pull request; empty before it does."""
        found = self.forge.state.comments.values()
        return next((it.body for it in found if it.number == number and it.author == self.forge.state.bot), "")

    def reviewed_s(self, number: int) -> float:
        """Seconds from the last push of a request's branch until comment and check stood."""
        state = self.forge.state
        request = state.requests[number]
        written = [it.updated_at_s for it in state.comments.values() if it.number == number and it.author == state.bot]
        stated = [it.started_at_s for it in state.latest_checks(request.head).values()]
        return max(*written, *stated) - request.pushed_at_s

    def say(self, number: int, who: str, text: str) -> None:
        """Comment on a pull request's page as somebody."""
        self.press(number, "comment", who, text=text)

    def press(self, number: int, button: str, who: str, **fields: str) -> None:
        """Press a button of a pull request's page as somebody."""
        request = urllib.request.Request(  # noqa: S310 - loopback
            f"{self.forge.page_of(number)}/{button}",
            urlencode({"as": who} | fields).encode(),
            {"Origin": self.forge.url},
        )
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - loopback
            answer.read()

    # -- faults ---------------------------------------------------------------------------------------------------

    def fault(self, route: str, **body: Any) -> None:
        """Cause one, over the fake cloud's control routes."""
        request = urllib.request.Request(  # noqa: S310 - loopback
            f"{self.world.cloud.url}/muster-sim/{route}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - loopback
            answer.read()
