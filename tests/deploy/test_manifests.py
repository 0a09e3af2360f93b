"""The manifests parse, fit together and keep the agent small."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config import load_settings
from providers.kube.objects.crds import NAMES

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted(
    path for path in DEPLOY.rglob("*.yaml") if path.parent != DEPLOY / "aws" and DEPLOY / "chart" not in path.parents
)
KUSTOMIZATIONS = sorted([*DEPLOY.rglob("kustomization.yaml"), *DEPLOY.rglob("Kustomization")])


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_file_parses(path: Path) -> None:
    found = list(yaml.safe_load_all(path.read_text("utf-8")))
    assert found
    assert all(isinstance(document, dict) for document in found)


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: path.parent.name)
def test_everything_a_kustomization_names_exists(path: Path) -> None:
    content = yaml.safe_load(path.read_text("utf-8"))
    generated = [name for generator in content.get("configMapGenerator", ()) for name in generator["files"]]
    for name in (*content.get("resources", ()), *content.get("components", ()), *generated):
        assert (path.parent / name).exists(), name


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("muster.yaml")), ids=lambda path: path.parent.name)
def test_the_agent_accepts_its_configuration(path: Path) -> None:
    settings = load_settings(path)
    assert settings.leader_election
    assert not settings.install_crds
    assert settings.namespace == "muster-system"
    for written in (settings.source.cache_dir, settings.journal, settings.record):
        assert str(written).startswith("/var/lib/muster/")


def deployment() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "base/deployment.yaml").read_text("utf-8"))
    return found


def test_the_pod_is_confined() -> None:
    pod = deployment()["spec"]["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]


def test_what_is_written_to_is_a_volume_of_its_own() -> None:
    pod = deployment()["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    for path in ("/var/lib/muster", "/tmp"):
        assert "emptyDir" in volumes[mounts[path]["name"]]
    assert mounts["/etc/muster"]["readOnly"]


def test_probes_and_service_reach_the_port_of_the_configuration() -> None:
    (container,) = deployment()["spec"]["template"]["spec"]["containers"]
    port, hook = container["ports"]
    settings = load_settings(DEPLOY / "base/muster.yaml")
    assert (port["containerPort"], hook["containerPort"]) == (settings.http.port, settings.webhook.port)
    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert probes["readinessProbe"]["path"] == "/readyz"
    assert probes["livenessProbe"]["path"] == "/healthz"
    services = {
        it["metadata"]["name"]: it for it in yaml.safe_load_all((DEPLOY / "base/service.yaml").read_text("utf-8"))
    }
    assert {name: [one["targetPort"] for one in it["spec"]["ports"]] for name, it in services.items()} == {
        "muster": [port["name"]],
        "muster-webhook": [hook["name"]],
    }, "metrics are on no port that a forge must reach"
    for service in services.values():
        assert service["spec"]["selector"] == deployment()["spec"]["selector"]["matchLabels"]
        assert service["spec"].get("type", "ClusterIP") == "ClusterIP"


def test_the_webhook_secret_is_the_file_the_configuration_names() -> None:
    pod = deployment()["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "env" not in container, "a variable would need a restart to change"
    (mount,) = [it for it in container["volumeMounts"] if it["name"] == "webhook"]
    (volume,) = [it for it in pod["volumes"] if it["name"] == "webhook"]
    for path in ("base/muster.yaml", "overlays/example/muster.yaml"):
        assert load_settings(DEPLOY / path).webhook.secret_file == Path(mount["mountPath"]) / "secret"
    assert "subPath" not in mount, "what is mounted that way is never brought up to date"
    assert mount["readOnly"]
    assert volume["secret"]["optional"]


def test_the_agent_never_lives_on_a_machine_it_may_give_back() -> None:
    affinity = deployment()["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "muster.dev/node-pool", "operator": "DoesNotExist"}]


def test_the_folder_of_definitions_holds_nothing_else_that_kubectl_reads() -> None:
    """`kubectl apply -f` takes every .json, .yaml and .yml of a folder, and no other file."""
    taken = [path for path in (DEPLOY / "crds").iterdir() if path.suffix in (".json", ".yaml", ".yml")]
    assert {yaml.safe_load(path.read_text("utf-8"))["metadata"]["name"] for path in taken} == {
        f"{plural}.muster.dev" for plural in NAMES
    }
    listed = yaml.safe_load((DEPLOY / "crds/Kustomization").read_text("utf-8"))["resources"]
    assert listed == sorted(path.name for path in taken)


@pytest.mark.parametrize("overlay", ["base", "overlays/example"])
def test_kustomize_builds_it(overlay: str) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on PATH")
    built = subprocess.run(
        [kubectl, "kustomize", str(DEPLOY / overlay)], capture_output=True, text=True, timeout=60, check=True
    )
    found = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(built.stdout)}
    definitions = {name for kind, name in found if kind == "CustomResourceDefinition"}
    assert definitions == {f"{plural}.muster.dev" for plural in NAMES}
    pod = found["Deployment", "muster"]["spec"]["template"]["spec"]
    (config,) = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
    assert ("ConfigMap", config) in found
    if overlay != "base":
        assert found["Deployment", "muster"]["spec"]["replicas"] == 2
        assert found["ConfigMap", config]["data"].keys() == {"muster.yaml", "allowed_signers"}


def test_the_image_runs_what_the_deployment_expects() -> None:
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    last = lines[len(lines) - 1 - next(i for i, line in enumerate(reversed(lines)) if line.startswith("FROM")) :]
    assert "USER 65532:65532" in last
    assert 'ENTRYPOINT ["muster"]' in last
    installs = [line for line in lines if "pip install" in line]
    assert installs
    assert all("--require-hashes" in line or "--no-deps --no-index" in line for line in installs)


def test_the_component_of_the_ledger_gives_one_agent_a_volume(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on PATH")
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    overlay = tmp_path / "deploy" / "overlays" / "with-ledger"
    overlay.mkdir()
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../../base"],
        "components": ["../../components/ledger"],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    done = subprocess.run([kubectl, "kustomize", str(overlay)], capture_output=True, text=True, timeout=60, check=True)
    found = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout)}
    spec = found["Deployment", "muster"]["spec"]
    assert spec["strategy"] == {"type": "Recreate"}, "the volume is of one node at a time"
    claims = {
        it["name"]: it["persistentVolumeClaim"]["claimName"]
        for it in spec["template"]["spec"]["volumes"]
        if "persistentVolumeClaim" in it
    }
    (container,) = spec["template"]["spec"]["containers"]
    mounted = {it["name"]: it["mountPath"] for it in container["volumeMounts"]}
    assert ("PersistentVolumeClaim", claims["ledger"]) in found
    assert mounted["ledger"] == "/var/lib/muster-ledger"
