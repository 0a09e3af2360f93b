"""The Helm chart: written from what kustomize reads, taken by a real helm, and rendered to the same objects."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.chart import EXPLAINED, LEFT_OUT, SWITCHES, chart, values

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart"
HELM = shutil.which("helm") or str(ROOT / "build" / "tools" / "helm")
"""`python -m tools.helm build/tools` brings it where no other is installed; `.ci/run` does."""
Manifest = dict[str, Any]
Key = tuple[str, str, str]


def test_the_chart_is_as_the_tool_writes_it() -> None:
    """`make schema` writes it."""
    found = {str(path.relative_to(CHART)): path.read_text("utf-8") for path in CHART.rglob("*") if path.is_file()}
    assert found == chart()


def test_every_component_can_be_had_or_is_left_out_for_a_reason() -> None:
    assert {path.name for path in (ROOT / "deploy" / "components").iterdir()} == {*SWITCHES, *LEFT_OUT}
    assert set(values()) == {*EXPLAINED, *(value for value, _ in SWITCHES.values())}


def helm(*arguments: str, code: int = 0) -> str:
    if not Path(HELM).exists():
        assert not os.environ.get("CI"), "in CI there is a helm: tools/helm.py"
        pytest.skip("helm is not installed")
    done = subprocess.run([HELM, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def rendered(*settings: str, namespace: str = "muster-system") -> dict[Key, Manifest]:
    switches = [word for it in settings for word in ("--set", it)]
    return objects(helm("template", "muster", str(CHART), "-n", namespace, "--include-crds", *switches))


def kustomized(folder: Path) -> dict[Key, Manifest]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    command = ["kubectl", "kustomize", "--load-restrictor", "LoadRestrictionsNone", str(folder)]
    return objects(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


def objects(text: str) -> dict[Key, Manifest]:
    """By kind, namespace and name; without the hash by which kustomize rolls pods, and the chart's digest.

    Kustomize gives FlowSchemas a namespace, which no API server looks at: they are of the whole cluster.
    """
    found = {}
    for document in yaml.safe_load_all(re.sub(r"\bmuster-[bcdfghkmt2-9]{10}\b(?=\n)", "muster", text)):
        if document:
            metadata = document["metadata"]
            if document["kind"] == "FlowSchema":
                metadata.pop("namespace", None)
            if document["kind"] == "Deployment":
                notes = document["spec"]["template"]["metadata"].pop("annotations", {})
                assert set(notes) <= {"muster.dev/config"}
                for unset in ("tolerations", "imagePullSecrets"):
                    assert unset not in document["spec"]["template"]["spec"]
            if (document["kind"], metadata["name"]) == ("ConfigMap", "muster"):
                document["data"] = {name: yaml.safe_load(it) for name, it in document["data"].items()}
            found[document["kind"], metadata.get("namespace", ""), metadata["name"]] = document
    return found


def test_helm_finds_nothing_to_mend() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize("components", [[], *([name] for name in SWITCHES), ["mig", "high-availability", "alerts"]])
def test_helm_renders_what_kustomize_does(components: list[str], tmp_path: Path) -> None:
    overlay = {
        "resources": [os.path.relpath(ROOT / "deploy" / "base", tmp_path)],
        "components": [os.path.relpath(ROOT / "deploy" / "components" / it, tmp_path) for it in components],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    ours = rendered("namespace.create=true", *(f"{SWITCHES[it][0]}.enabled=true" for it in components))
    theirs = kustomized(tmp_path)
    assert ours.keys() == theirs.keys()
    for key, document in theirs.items():
        assert ours[key] == document, key


def test_by_default_the_namespace_is_made_by_whoever_installs() -> None:
    assert not [key for key in rendered() if key[0] == "Namespace"]


def test_another_namespace_is_everywhere() -> None:
    found = rendered("namespace.create=true", "planReader.enabled=true", namespace="gpu")
    assert [key for key, it in found.items() if "muster-system" in json.dumps(it)] == []
    assert found["ConfigMap", "gpu", "muster"]["data"]["muster.yaml"]["namespace"] == "gpu"


def test_what_is_set_is_there() -> None:
    command = ("template", "muster", str(CHART), "-n", "muster-system")
    role = "serviceAccount.annotations.eks\\.amazonaws\\.com/role-arn=arn:aws:iam::1:role/muster"
    files = "files.allowed_signers=ada ssh-ed25519 AAAA"
    sets = (
        "image.repository=registry.example.com/muster",
        "image.digest=sha256:00",
        role,
        files,
        "config.cluster=blue",
    )
    text = helm(*command, *(word for it in sets for word in ("--set", it)))
    found = {(it["kind"], it["metadata"]["name"]): it for it in yaml.safe_load_all(text) if it}
    [container] = found["Deployment", "muster"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/muster@sha256:00"
    assert found["ServiceAccount", "muster"]["metadata"]["annotations"] == {
        "eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/muster"
    }
    data = found["ConfigMap", "muster"]["data"]
    assert (data["allowed_signers"], yaml.safe_load(data["muster.yaml"])["cluster"]) == ("ada ssh-ed25519 AAAA", "blue")


def test_a_change_of_the_settings_rolls_the_pods() -> None:
    def digest(cluster: str) -> str:
        text = helm("template", "muster", str(CHART), "--set", f"config.cluster={cluster}")
        return re.findall(r"muster\.dev/config: (\w{64})", text)[0]

    assert digest("blue") == digest("blue") != digest("green")


@pytest.mark.parametrize("wrong", ["imagee.tag=1", "ledger.enabld=true", "image.tga=1", "mig.enabled=maybe"])
def test_a_value_that_is_not_there_is_refused(wrong: str) -> None:
    assert "values don't meet the specifications" in helm("template", "muster", str(CHART), "--set", wrong, code=1)
