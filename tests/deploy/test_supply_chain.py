"""What a release is made of and says of itself, and who reaches the agent: rules over the files that decide it."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from providers.git.pgp import PROGRAM

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yaml"))
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def text(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


def script(workflow: Path) -> str:
    return "\n".join(step.get("run", "") for step in steps(workflow))


RELEASE = ROOT / ".github/workflows/release.yaml"


def test_every_stage_of_the_image_stands_on_the_base_that_the_release_gives_by_digest() -> None:
    lines = text("Dockerfile").splitlines()
    assert {line.split()[1] for line in lines if line.startswith("FROM")} == {"${PYTHON_IMAGE}"}
    assert [line for line in lines if line.startswith("ARG")] == ["ARG PYTHON_IMAGE=python:3.11-slim"]
    said = script(RELEASE)
    assert "image=python:3.11-slim@$digest" in said
    assert '--build-arg "PYTHON_IMAGE=$PYTHON_IMAGE"' in said


def test_the_image_has_the_programs_that_the_agent_runs() -> None:
    """Debian's newer images verify packages with another program, and have no gpgv of their own."""
    last = text("Dockerfile").rpartition("\nFROM ")[2]
    assert f"apt-get install --yes --no-install-recommends {PROGRAM} " in last
    assert last.index("apt-get install") < last.index("\nUSER ")


def test_the_image_carries_its_bill_of_materials_and_signed_provenance() -> None:
    said = script(RELEASE)
    for option in ("--sbom=true", "--provenance=mode=max", "image-digest.txt", "sbom.json", "provenance.json"):
        assert option in said
    attested = [step["with"] for step in steps(RELEASE) if "attest-build-provenance" in step.get("uses", "")]
    assert [sorted(each) for each in attested] == [
        ["push-to-registry", "subject-digest", "subject-name"],
        ["subject-path"],
    ]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_have_few_rights_and_run_nothing_of_strangers(workflow: Path) -> None:
    parsed = yaml.safe_load(workflow.read_text("utf-8"))
    assert parsed["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in parsed[True], "`on` is read as true"
    assert "${{" not in script(workflow), "what is put into a script is run; variables are not"
    for step in steps(workflow):
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_or_say_that_they_are_to_be(workflow: Path) -> None:
    for line in workflow.read_text("utf-8").splitlines():
        if found := re.search(r"uses: ([\w./-]+)@(\S+)(.*)", line):
            assert re.fullmatch(r"[0-9a-f]{40}", found[2]) or found[3] == " # pin by commit", line
            assert found[1].startswith("actions/"), "no further party has a say in a release"


def test_an_overlay_names_the_image_by_digest() -> None:
    (image,) = yaml.safe_load(text("deploy/overlays/example/kustomization.yaml"))["images"]
    assert DIGEST.fullmatch(image["digest"])
    assert "newTag" not in image
    (deployment,) = yaml.safe_load_all(text("deploy/base/deployment.yaml"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image["name"], "without an overlay it is no image at all"


def test_the_deployment_that_is_built_runs_that_digest() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on PATH")
    command = [kubectl, "kustomize", str(DEPLOY / "overlays/example")]
    built = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    found = [one for one in yaml.safe_load_all(built) if one["kind"] == "Deployment"]
    (container,) = found[0]["spec"]["template"]["spec"]["containers"]
    assert re.fullmatch(r"registry\.example\.com/muster@sha256:0{64}", container["image"])


def policy(path: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text(path))
    (deployment,) = yaml.safe_load_all(text("deploy/base/deployment.yaml"))
    pod = deployment["spec"]["template"]["metadata"]["labels"]
    assert found["spec"]["podSelector"]["matchLabels"] == pod
    spec: dict[str, Any] = found["spec"]
    return spec


def test_only_the_webhook_is_reached_from_anywhere() -> None:
    spec = policy("deploy/base/network-policy.yaml")
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == [{"ports": [{"port": "webhook", "protocol": "TCP"}]}]
    (metrics,) = policy("deploy/components/service-monitor/network-policy.yaml")["ingress"]
    assert [port["port"] for port in metrics["ports"]] == ["http"]
    assert metrics["from"], "what teams spend is not for everybody"


def test_the_agent_reaches_what_it_needs_and_not_the_machine_s_metadata() -> None:
    open_to = policy("deploy/base/network-policy.yaml")["egress"]
    anywhere = [one for one in open_to if any(it.get("ipBlock", {}).get("cidr") == "0.0.0.0/0" for it in one["to"])]
    (world,) = anywhere
    assert {port["port"] for port in world["ports"]} == {443, 6443, 22}
    assert all(it["ipBlock"]["except"] for it in world["to"])
    blocks = {it["ipBlock"]["cidr"] for one in open_to for it in one["to"] if "ipBlock" in it}
    assert "169.254.169.254/32" not in blocks
    assert all(one.get("to") and one.get("ports") for one in open_to), "an empty rule allows everything"


def test_the_security_policy_says_how_to_report_what_is_trusted_and_what_is_mended() -> None:
    said = text("SECURITY.md")
    for heading in ("Reporting", "Supported versions", "What is trusted, and what is not", "What a release carries"):
        assert f"\n## {heading}\n" in said
    for link in re.findall(r"\]\(([^)#]+)", said):
        assert (ROOT / link).exists(), link
