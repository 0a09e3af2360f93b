"""kubectl with what it checks on its own before it sends: lists, whole folders, schemas within definitions."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from providers.sim.apiserver import ApiServer
from tests.providers.sim.apiserver.clusters import Kubectl, kubectl_of

CRDS = Path(__file__).resolve().parents[4] / "deploy/crds"
NAMES = sorted(yaml.safe_load(path.read_text("utf-8"))["metadata"]["name"] for path in CRDS.glob("*.yaml"))
LIST = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: "1"}}
- {apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}]}}
"""


@pytest.mark.parametrize("how", [("create",), ("apply",), ("apply", "--server-side")], ids=" ".join)
def test_a_list_is_every_object_in_it(kubectl: Kubectl, how: tuple[str, ...]) -> None:
    made = kubectl(*how, "-f", "-", stdin=LIST).stdout.splitlines()
    assert [line.split()[0] for line in made] == ["configmap/a", "service/s"]
    assert kubectl("get", "cm,svc", "-o", "name").stdout.split() == ["configmap/a", "service/s"]
    gone = kubectl("delete", "-f", "-", stdin=LIST).stdout
    assert gone == 'configmap "a" deleted\nservice "s" deleted\n'


def test_a_list_is_applied_and_replaced_again(kubectl: Kubectl) -> None:
    changed = LIST.replace('x: "1"', 'x: "2"')
    kubectl("apply", "-f", "-", stdin=LIST)
    assert kubectl("diff", "-f", "-", stdin=changed, fails=True).returncode == 1
    applied = kubectl("apply", "-f", "-", stdin=changed).stdout
    assert applied == "configmap/a configured\nservice/s unchanged\n"
    assert kubectl("replace", "-f", "-", stdin=LIST).stdout == "configmap/a replaced\nservice/s replaced\n"
    assert kubectl("get", "cm", "a", "-o", "jsonpath={.data.x}").stdout == "1"


def test_a_list_with_an_unknown_field_creates_nothing(kubectl: Kubectl) -> None:
    refused = kubectl("apply", "-f", "-", stdin=LIST.replace(", data:", ", datum:"), fails=True).stderr
    assert 'ValidationError(ConfigMap): unknown field "datum" in io.k8s.api.core.v1.ConfigMap' in refused
    assert kubectl("get", "cm,svc", "-o", "name").stdout == ""


def test_the_folder_of_definitions_is_applied_as_it_is(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(CRDS / "workloads.yaml"))
    applied = kubectl("apply", "-f", str(CRDS)).stdout.split("\n")
    assert len([line for line in applied if line.startswith("customresourcedefinition")]) == len(NAMES)
    assert applied[-2].endswith("workloads.muster.dev unchanged")
    kubectl("apply", "--server-side", "-f", str(CRDS))
    kubectl("replace", "-f", str(CRDS))
    kubectl("apply", "-k", str(CRDS))
    found = kubectl("get", "crd", "-o", "name").stdout
    assert all(name in found for name in NAMES)
    kubectl("delete", "-f", str(CRDS))
    kubectl("create", "-f", str(CRDS))
    kubectl("delete", "-f", str(CRDS))


def definition(group: str, **spec: Any) -> str:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    names = {"plural": "gadgets", "kind": "Gadget"}
    return yaml.safe_dump(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"gadgets.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
        }
    )


NUMBER = {"type": "integer", "minimum": 1}
EITHER = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
SHAPES: dict[str, dict[str, Any]] = {
    "items": {"type": "array", "items": {"type": "object", "properties": {"a": NUMBER}, "required": ["a"]}},
    "items of items": {"type": "array", "items": {"type": "array", "items": NUMBER}},
    "additionalProperties": {"type": "object", "additionalProperties": EITHER},
    "a flag": {"type": "object", "additionalProperties": True},
    "not": {"type": "integer", "not": {"maximum": 0}},
    "allOf": {"type": "integer", "allOf": [{"minimum": 1.5}, {"anyOf": [{"maximum": 3}, {"maximum": 5}]}]},
    "oneOf": {"type": "integer", "oneOf": [{"minimum": 1}, {"maximum": -1}]},
    "a default": {
        "type": "object",
        "default": {"any": ["thing"]},
        "properties": {"any": {"type": "array", "items": {"type": "string"}}},
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_schema_holds_schemas(kubectl: Kubectl, namespace: str, shape: str) -> None:
    group = f"{namespace}.test"
    kubectl("apply", "-f", "-", stdin=definition(group, x=SHAPES[shape]))
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=definition(group, x=SHAPES[shape]))
    other = definition(group, x={"type": "object", "additionalProperties": NUMBER})
    kubectl("apply", "-f", "-", stdin=other)
    kept = "jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.x}"
    held = yaml.safe_load(kubectl("get", "crd", f"gadgets.{group}", "-o", kept).stdout)
    assert held == {"type": "object", "additionalProperties": NUMBER}
    kubectl("delete", "crd", f"gadgets.{group}")


JOBSET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  suspend: true
  failurePolicy: {maxRestarts: 2, rules: [{action: FailJobSet, onJobFailureReasons: [DeadlineExceeded]}]}
  replicatedJobs:
  - name: workers
    template:
      spec:
        parallelism: 2
        template:
          spec:
            invented: {kept: true}
            containers: [{name: c, image: "registry.test/c:1", ports: [{containerPort: 80}], later: 1}]
"""


@pytest.fixture
def jobsets(server: ApiServer, tmp_path: Path) -> Kubectl:
    """kubectl on the embedded server, which has JobSet from the start."""
    return kubectl_of(server.kubeconfig(tmp_path / "kubeconfig"), "default", tmp_path)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("spec.replicatedJobs", "FIELD: replicatedJobs <[]Object>"),
        ("spec.replicatedJobs.replicas", "FIELD: replicas <integer>"),
        ("spec.replicatedJobs.template.spec.parallelism", "FIELD: parallelism <integer>"),
        ("spec.replicatedJobs.template.spec.template.spec.containers.image", "FIELD: image <string>"),
        ("spec.suspend", "FIELD: suspend <boolean>"),
        ("spec.successPolicy.operator", "ENUM:\n    All\n    Any"),
        ("spec.failurePolicy.rules.action", "RestartJobAndIgnoreMaxRestarts"),
        ("status.replicatedJobsStatus.ready", "FIELD: ready <integer>"),
    ],
)
def test_jobset_is_explained(jobsets: Kubectl, path: str, said: str) -> None:
    assert said in jobsets("explain", f"jobset.{path}").stdout


def test_jobset_is_validated_and_its_pods_are_left_alone(jobsets: Kubectl) -> None:
    unknown = jobsets("apply", "-f", "-", stdin=JOBSET.replace("parallelism", "parallel"), fails=True).stderr
    assert 'unknown field "spec.replicatedJobs[0].template.spec.parallel"' in unknown
    wrong = jobsets("apply", "-f", "-", stdin=JOBSET.replace("parallelism: 2", "parallelism: two"), fails=True).stderr
    assert "spec.replicatedJobs[0].template.spec.parallelism" in wrong
    assert "must be of type integer" in wrong
    jobsets("apply", "-f", "-", stdin=JOBSET)
    before = jobsets("get", "jobset", "train", "-o", "yaml").stdout
    jobsets("apply", "-f", "-", stdin=JOBSET)  # the webhook's defaults come again, the jobs are not changed
    assert jobsets("get", "jobset", "train", "-o", "yaml").stdout == before
    (entry,) = yaml.safe_load(before)["spec"]["replicatedJobs"]
    pods = entry["template"]["spec"]["template"]["spec"]
    assert (entry["replicas"], pods["invented"], pods["containers"][0]["later"]) == (1, {"kept": True}, 1)


def test_the_containers_of_a_jobset_merge_by_name(jobsets: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    jobsets(*apply, "--field-manager=one", stdin=JOBSET)
    lines = [line for line in JOBSET.splitlines() if not any(word in line for word in ("Policy", "parallel", "invent"))]
    theirs = "\n".join(lines).partition("containers:")[0] + "containers: [{name: c}]\n"
    jobsets(*apply, "--field-manager=two", stdin=theirs)
    image = "jsonpath={.spec.replicatedJobs[0].template.spec.template.spec.containers[*].image}"
    assert jobsets("get", "jobset", "train", "-o", image).stdout == "registry.test/c:1"
    other = theirs.replace("{name: c}", "{name: c, image: other}")
    refused = jobsets(*apply, "--field-manager=two", stdin=other, fails=True).stderr
    assert 'conflict with "one"' in refused
    assert 'containers[name="c"].image' in refused
