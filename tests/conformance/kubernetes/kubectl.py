"""What kubectl does with lists that hold a bad item, and how it drains: the real kubectl on the embedded server."""

import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from providers.clock import SystemClock
from providers.sim.apiserver import ApiServer
from providers.sim.controllers.budgets import Budgets
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.store import Store
from tests.conformance.cases import Case, Result

Obj = dict[str, Any]
ANSWERS: Final = frozenset({"exit", "stdout", "stderr", "left", "seconds", "note"})
DECLINED: Mapping[str, str] = {}
KUBECTL: Final = shutil.which("kubectl")
_NODE, _SPACE = "n1", "conformance"
_LEFT: Final = ("configmap", "service")
_LOG_LINE: Final = re.compile(r"W\d{4} \d\d:")
"""What kubectl's logger writes beside its answer, with the time and its process; the recorder left it out."""
_WAIT_S: Final = 150.0
# The recorded drain of an unobserved budget sat out ten times ten seconds; here it is stopped when it has sat out one.
_SATISFIED_S: Final = 15.0


def run(case: Case) -> Obj:
    """What kubectl says and what is there after it."""
    if KUBECTL is None:
        raise FileNotFoundError("kubectl is not on the PATH")
    with tempfile.TemporaryDirectory() as folder, ApiServer(Store(SystemClock())) as server:
        kubectl = _Kubectl(server, Path(folder))
        _create(server.store, "Namespace", {"metadata": {"name": _SPACE}})
        if "drain" in case["args"]:
            return kubectl.drain(case)
        done = kubectl(case["args"], case["stdin"])
        left = [
            f"{kind}/{it['metadata']['name']}"
            for kind in _LEFT
            for it in server.store.list(server.store.resource(kind), _SPACE)
            if it["metadata"]["name"] not in ("kubernetes", "kube-root-ca.crt")
        ]
        told = "\n".join(line for line in done.stderr.strip().splitlines() if not _LOG_LINE.match(line))
        said = {"stdout": done.stdout.strip(), "stderr": told.replace(_SPACE, "{ns}")}
        return {"exit": done.returncode, **said, "left": left}


def same(case: Case, got: object) -> bool:
    """The same exit code, the very words, the same objects left; a drain takes as long."""
    if not isinstance(got, dict):
        return False
    if "seconds" in case:
        patient = case["seconds"] > 60
        told = got["stderr"].splitlines()[:1] == [_shown(case["stderr"]).splitlines()[0]] or patient
        return bool(got["patient"] is patient and told)
    wanted = {key: case[key] for key in ("exit", "stdout", "stderr", "left")}
    return got == wanted


def _shown(text: str) -> str:
    return text.replace("<ns>", _SPACE).replace("<node>", _NODE)


def table(results: Sequence[Result]) -> list[str]:
    """Passed and failed."""
    passed = sum(result.passed for result in results)
    return [f"kubectl: {passed} passed, {len(results) - passed} failed, {len(DECLINED)} declined"]


def _create(store: Store, kind: str, obj: Obj) -> Obj:
    return store.create(store.resource(kind), obj, namespace=obj["metadata"].get("namespace", ""))


class _Kubectl:
    def __init__(self, server: ApiServer, folder: Path) -> None:
        self._server = server
        config = server.kubeconfig(folder / "kubeconfig")
        self._environment = {"PATH": os.environ["PATH"], "KUBECONFIG": str(config), "HOME": str(folder)}

    def __call__(self, arguments: Sequence[str], stdin: str) -> subprocess.CompletedProcess[str]:
        command = [str(KUBECTL), f"--namespace={_SPACE}", *arguments]
        environment = self._environment
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=_WAIT_S, check=False, env=environment
        )

    def drain(self, case: Case) -> Obj:
        """A drain of a node with one pod and a budget that does not let it go: observed by the controller, or not."""
        store = self._server.store
        _create(store, "Node", {"metadata": {"name": _NODE}})
        pod = {"nodeName": _NODE, "containers": [{"name": "c", "image": "i"}]}
        _create(store, "Pod", {"metadata": {"name": "p", "namespace": _SPACE, "labels": {"app": "x"}}, "spec": pod})
        running: Obj = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        held = store.get(store.resource("Pod"), "p", _SPACE)
        store.update(store.resource("Pod"), {**held, "status": running}, namespace=_SPACE, subresource="status")
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
        _create(store, "PodDisruptionBudget", {"metadata": {"name": "b", "namespace": _SPACE}, "spec": spec})
        if case["id"].endswith("-observed"):
            Budgets(MirroredCluster(store)).step(0.0)
        return self._drained([_shown(argument) for argument in case["args"]])

    def _drained(self, arguments: Sequence[str]) -> Obj:
        """Runs the drain; a patient one, which sits out `Retry-After`, is ended after it has shown its patience."""
        started, command = time.monotonic(), [str(KUBECTL), f"--namespace={_SPACE}", *arguments]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self._environment
        ) as process:
            timer = threading.Timer(_SATISFIED_S, process.kill)
            timer.start()
            _, stderr = process.communicate()
            timer.cancel()
        seconds = time.monotonic() - started
        lines = [line for line in stderr.strip().splitlines() if not re.match("(Warning|node/)", line)]
        return {"exit": process.returncode, "stderr": "\n".join(lines), "patient": seconds >= _SATISFIED_S}
