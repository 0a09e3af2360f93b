"""What the guide says to type on a new cluster, typed: kubectl against an API server that holds nothing."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.clock import SystemClock
from providers.sim.apiserver import ApiServer
from providers.sim.store import Store
from tests.providers.sim.apiserver.clusters import Kubectl, kubectl_of

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/guides/running-on-a-cluster.md"
OVERLAY = ROOT / "deploy/overlays/example"


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubectl]:
    monkeypatch.chdir(ROOT)
    with ApiServer(Store(SystemClock())) as server:
        yield kubectl_of(server.kubeconfig(tmp_path / "kubeconfig"), "", tmp_path)


def typed(overlay: Path) -> list[list[str]]:
    """The commands of the guide's section on the cluster, in their order."""
    section = GUIDE.read_text("utf-8").split("\n## The cluster\n")[1].split("\n## ")[0]
    lines = re.findall(r"^    kubectl (.+)$", section, re.MULTILINE)
    found = [shlex.split(line.replace("<your overlay>", str(overlay))) for line in lines]
    return [words for words in found if words[0] in ("apply", "diff")]


def test_the_commands_of_the_guide_work_in_their_order(kubectl: Kubectl) -> None:
    commands = typed(OVERLAY)
    assert [words[0] for words in commands] == ["apply", "diff", "apply"]
    first, compare, apply = commands
    kubectl(*first)
    before = kubectl(*compare, fails=True)
    assert before.returncode == 1, f"1 is a difference, more is a failure: {before.stderr}"
    assert "+kind: Deployment" in before.stdout
    applied = kubectl(*apply)
    assert "deployment.apps/muster serverside-applied" in applied.stdout
    assert applied.stderr == ""
    after = kubectl(*compare)
    assert after.stdout == ""


def test_the_definitions_can_be_applied_alone(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "-f", "deploy/crds")
    kubectl("wait", "--for=condition=Established", "crd/nodeclaims.muster.dev", "--timeout=10s")


def test_components_say_what_they_need_first(kubectl: Kubectl, tmp_path: Path) -> None:
    """Those that the example leaves out fail on a new cluster, and work once that is there."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    overlay = tmp_path / "deploy/overlays/example/kustomization.yaml"
    overlay.write_text(
        overlay.read_text("utf-8").replace("# - ../../components/mig", "- ../../components/mig"), "utf-8"
    )
    refused = kubectl("apply", "--server-side", "-k", str(overlay.parent), fails=True)
    assert 'namespaces "gpu-operator" not found' in refused.stderr
    kubectl("create", "namespace", "gpu-operator")
    kubectl("apply", "--server-side", "-k", str(overlay.parent))
