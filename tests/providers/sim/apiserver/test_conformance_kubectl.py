"""kubectl against the embedded server, and against a real one where it is installed."""

import re
import subprocess
from pathlib import Path
from typing import Any

from tests.providers.sim.apiserver.clusters import KUBECTL, Kubectl

POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: x}}
spec:
  containers: [{name: c, image: "registry.test/c:1"}]
"""
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {a: "1"}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 2
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: x}}
    spec:
      containers:
      - {name: a, image: "registry.test/a:1"}
      - {name: b, image: "registry.test/b:1"}
"""
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: NAME, labels: {gpu: h100}}\n"


def definition(group: str) -> str:
    return f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: widgets.{group}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wd]}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {{status: {{}}}}
    additionalPrinterColumns:
    - {{name: Size, type: integer, jsonPath: .spec.size}}
    - {{name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}}
    - {{name: Note, type: string, jsonPath: .spec.note, priority: 1}}
    - {{name: Age, type: date, jsonPath: .metadata.creationTimestamp}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {{type: integer, minimum: 1, description: How large the widget is.}}
              note: {{type: string}}
          status: {{type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


def rows(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in text.strip().splitlines()]


def test_create_and_get(kubectl: Kubectl) -> None:
    assert kubectl("create", "-f", "-", stdin=POD).stdout == "pod/p created\n"
    header, row = rows(kubectl("get", "pods").stdout)
    assert header == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row[:4] == ["p", "0/1", "Pending", "0"]
    wide, _ = rows(kubectl("get", "po", "-o", "wide").stdout)
    assert wide[5:] == ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
    assert kubectl("get", "pod/p", "-o", "jsonpath={.spec.containers[0].image}").stdout == "registry.test/c:1"
    assert "kind: Pod" in kubectl("get", "pod", "p", "-o", "yaml").stdout
    assert "AlreadyExists" in kubectl("create", "-f", "-", stdin=POD, fails=True).stderr
    assert "NotFound" in kubectl("get", "pod", "nobody", fails=True).stderr


def test_selectors(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD + "---" + POD.replace("name: p,", "name: q,").replace("app: x", "app: other"))
    assert kubectl("get", "pods", "-l", "app=x", "-o", "name").stdout == "pod/p\n"
    assert kubectl("get", "pods", "-l", "app in (other,z)", "-o", "name").stdout == "pod/q\n"
    assert kubectl("get", "pods", "--field-selector", "metadata.name=q", "-o", "name").stdout == "pod/q\n"
    assert kubectl("get", "pods", "--field-selector", "status.phase=Running", "-o", "name").stdout == ""
    assert "field label not supported" in kubectl("get", "pods", "--field-selector", "spec.x=y", fails=True).stderr
    assert kubectl("get", "pods", "--chunk-size=1", "-o", "name").stdout == "pod/p\npod/q\n"


def test_create_by_generator(kubectl: Kubectl) -> None:
    """These send protobuf."""
    kubectl("create", "configmap", "c", "--from-literal=a=b")
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.data.a}").stdout == "b"
    kubectl("create", "secret", "generic", "s", "--from-literal=a=b")
    assert kubectl("get", "secret", "s", "-o", "jsonpath={.data.a}").stdout == "Yg=="
    kubectl("create", "job", "j", "--image=registry.test/j:1", "--", "sleep", "1")
    found = kubectl("get", "job", "j", "-o", "jsonpath={.spec.template.spec.containers[0].command}").stdout
    assert found == '["sleep","1"]'
    kubectl("create", "pdb", "b", "--min-available=50%", "--selector=app=x")
    assert kubectl("get", "pdb", "b", "-o", "jsonpath={.spec.minAvailable}").stdout == "50%"
    kubectl("create", "deployment", "d", "--image=registry.test/d:1", "--replicas=0", "--port=80")
    assert kubectl("get", "deploy", "d", "-o", "jsonpath={.spec.replicas}").stdout == "0"
    kubectl("create", "role", "r", "--verb=get,list", "--resource=pods")
    kubectl("create", "service", "clusterip", "s", "--tcp=80:8080")
    assert kubectl("get", "svc", "s", "-o", "jsonpath={.spec.ports[0].targetPort}").stdout == "8080"
    assert kubectl("auth", "can-i", "create", "pods").stdout == "yes\n"


def test_apply_and_diff(kubectl: Kubectl) -> None:
    assert kubectl("diff", "-f", "-", stdin=CONFIG, fails=True).returncode == 1
    assert "created" in kubectl("apply", "-f", "-", stdin=CONFIG).stdout
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=CONFIG).stdout
    changed = CONFIG.replace('a: "1"', 'b: "2"')
    difference = kubectl("diff", "-f", "-", stdin=changed, fails=True).stdout
    assert '-  a: "1"' in difference
    assert '+  b: "2"' in difference
    assert "configured" in kubectl("apply", "-f", "-", stdin=changed).stdout
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.data}").stdout == '{"b":"2"}'
    assert kubectl("diff", "-f", "-", stdin=changed).stdout == ""


def test_apply_three_way_merges_lists_by_key(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT.replace('      - {name: b, image: "registry.test/b:1"}\n', ""))
    names = kubectl("get", "deploy", "d", "-o", "jsonpath={.spec.template.spec.containers[*].name}").stdout
    assert names == "a"


def test_server_side_apply_and_its_conflicts(kubectl: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    assert "serverside-applied" in kubectl(*apply, "--field-manager=one", stdin=CONFIG).stdout
    other = CONFIG.replace('a: "1"', 'a: "2"')
    refused = kubectl(*apply, "--field-manager=two", stdin=other, fails=True).stderr
    assert 'conflict with "one"' in refused
    assert ".data.a" in refused
    kubectl(*apply, "--field-manager=two", "--force-conflicts", stdin=other)
    shown = kubectl("get", "cm", "c", "-o", "yaml", "--show-managed-fields").stdout
    assert "manager: two" in shown
    assert "manager: one" not in shown


def test_validation_names_the_unknown_field(kubectl: Kubectl) -> None:
    refused = kubectl("apply", "-f", "-", stdin=POD.replace("image:", "imag: x, image:"), fails=True).stderr
    assert 'unknown field "spec.containers[0].imag"' in refused


def test_dry_run_on_the_server(kubectl: Kubectl) -> None:
    assert "(server dry run)" in kubectl("apply", "--dry-run=server", "-f", "-", stdin=POD).stdout
    kubectl("get", "pod", "p", fails=True)


def test_patch_in_three_ways_and_replace(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    containers = '{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"registry.test/b:2"}]}}}}'
    kubectl("patch", "deploy", "d", "-p", containers)
    images = "jsonpath={.spec.template.spec.containers[*].image}"
    assert kubectl("get", "deploy", "d", "-o", images).stdout == "registry.test/a:1 registry.test/b:2"
    kubectl("patch", "deploy", "d", "--type=merge", "-p", '{"spec":{"replicas":5}}')
    guarded = '[{"op":"test","path":"/spec/replicas","value":5},{"op":"replace","path":"/spec/replicas","value":6}]'
    kubectl("patch", "deploy", "d", "--type=json", "-p", guarded)
    assert "invalid" in kubectl("patch", "deploy", "d", "--type=json", "-p", guarded, fails=True).stderr
    current = kubectl("get", "deploy", "d", "-o", "yaml").stdout
    kubectl("replace", "-f", "-", stdin=current.replace("replicas: 6", "replicas: 7"))
    stale = kubectl("replace", "-f", "-", stdin=current, fails=True).stderr
    assert "Conflict" in stale
    assert kubectl("get", "deploy", "d", "-o", "jsonpath={.spec.replicas}").stdout == "7"


def test_scale_label_annotate(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("scale", "deploy", "d", "--replicas=4")
    assert kubectl("get", "deploy", "d", "-o", "jsonpath={.spec.replicas}").stdout == "4"
    assert (
        "Expected replicas to be 1"
        in kubectl("scale", "deploy/d", "--current-replicas=1", "--replicas=9", fails=True).stderr
    )
    kubectl("label", "deploy", "d", "team=blue")
    assert "--overwrite" in kubectl("label", "deploy", "d", "team=red", fails=True).stderr
    kubectl("label", "deploy", "d", "team-")
    kubectl("annotate", "deploy", "d", "x.test/note=hello")
    shown = kubectl(
        "get", "deploy", "d", "-o", "jsonpath={.metadata.labels}{.metadata.annotations.x\\.test/note}"
    ).stdout
    assert shown == "hello"


def test_taint_cordon_drain(kubectl: Kubectl, namespace: str) -> None:
    node = f"n-{namespace}"
    kubectl("apply", "-f", "-", stdin=NODE.replace("NAME", node))
    kubectl("taint", "node", node, "gpu=true:NoSchedule")
    kubectl("taint", "node", node, "other=x:NoSchedule")
    kubectl("taint", "node", node, "gpu-")
    assert "gpu" not in kubectl("get", "node", node, "-o", "jsonpath={.spec.taints[*].key}").stdout.split()
    kubectl("cordon", node)
    header, row = rows(kubectl("get", "nodes", node).stdout)
    assert header[:2] == ["NAME", "STATUS"]
    assert row[1].endswith("SchedulingDisabled")
    assert node in kubectl("get", "nodes", "--field-selector", "spec.unschedulable=true", "-o", "name").stdout
    pinned = POD.replace("spec:\n", f"spec:\n  nodeName: {node}\n  terminationGracePeriodSeconds: 0\n")
    kubectl("apply", "-f", "-", stdin=pinned)
    drained = kubectl("drain", node, "--force", "--timeout=20s").stdout
    assert "evicting pod" in drained
    kubectl("get", "pod", "p", fails=True)
    kubectl("uncordon", node)
    assert "Taints:" in kubectl("describe", "node", node).stdout
    kubectl("delete", "node", node)


def test_drain_waits_for_the_budget(kubectl: Kubectl, namespace: str) -> None:
    node = f"m-{namespace}"
    kubectl("apply", "-f", "-", stdin=NODE.replace("NAME", node))
    kubectl("apply", "-f", "-", stdin=POD.replace("spec:\n", f"spec:\n  nodeName: {node}\n"))
    kubectl("create", "pdb", "b", "--min-available=1", "--selector=app=x")
    running = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "pod", "p", "--subresource=status", "-p", running)
    # As the disruption controller would: a budget that nobody has observed sends Retry-After, which kubectl sits out.
    observed = '{"status":{"observedGeneration":1,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1}}'
    kubectl("patch", "pdb", "b", "--subresource=status", "--type=merge", "-p", observed)
    refused = kubectl("drain", node, "--force", "--timeout=1s", fails=True)
    assert "violate the pod's disruption budget" in refused.stderr + refused.stdout
    kubectl("delete", "pod", "p", "--grace-period=0", "--force")
    kubectl("delete", "node", node)


def test_watch(kubectl: Kubectl, kubeconfig: Path, namespace: str) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    shape = "jsonpath={.type} {.object.metadata.annotations.n}{'\\n'}"
    arguments = ["get", "cm", "c", "-w", "--output-watch-events", "-o", shape, "--request-timeout=20s"]
    command = [str(KUBECTL), f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        try:
            assert watch.stdout.readline() == "ADDED \n"
            for number in range(3):
                kubectl("annotate", "cm", "c", f"n={number}", "--overwrite")
            kubectl("delete", "cm", "c")
            seen = [watch.stdout.readline().split() for _ in range(4)]
        finally:
            watch.terminate()
    assert seen == [["MODIFIED", "0"], ["MODIFIED", "1"], ["MODIFIED", "2"], ["DELETED", "2"]]


def test_wait_and_delete(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    kubectl("wait", "--for=jsonpath={.status.phase}=Pending", "pod/p", "--timeout=10s")
    assert "timed out" in kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=1s", fails=True).stderr
    ready = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "pod", "p", "--subresource=status", "-p", ready)
    kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=10s")
    assert kubectl("delete", "pod", "p").stdout == 'pod "p" deleted\n'
    kubectl("wait", "--for=delete", "pod/p", "--timeout=10s")
    assert "NotFound" in kubectl("delete", "pod", "p", fails=True).stderr
    kubectl("delete", "pod", "p", "--ignore-not-found")


def test_describe(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD + "---" + DEPLOYMENT)
    text = kubectl("describe", "pod", "p").stdout
    assert re.search(r"Image: +registry.test/c:1", text)
    assert "QoS Class:" in text
    assert re.search(r"Replicas: +2 desired", kubectl("describe", "deploy", "d").stdout)


def test_explain_and_api_resources(kubectl: Kubectl) -> None:
    text = kubectl("explain", "pod.spec.containers.image").stdout
    assert "FIELD: image <string>" in text
    assert "image name" in text
    assert re.search(
        r"FIELD: schedulingGates <\[\]\S*PodSchedulingGate>", kubectl("explain", "pod.spec.schedulingGates").stdout
    )
    listed = kubectl("api-resources", "--no-headers").stdout
    for plural in ("pods", "jobs", "leases", "poddisruptionbudgets", "customresourcedefinitions"):
        assert re.search(rf"^{plural} ", listed, re.MULTILINE)
    assert "batch/v1" in kubectl("api-versions").stdout.split()


def test_custom_resources(kubectl: Kubectl, namespace: str) -> None:
    group = f"{namespace}.test"
    kubectl("apply", "-f", "-", stdin=definition(group))
    kubectl("wait", "--for=condition=Established", f"crd/widgets.{group}", "--timeout=10s")
    widget = f"apiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: w}}\nspec: {{size: 3, note: hi}}\n"
    kubectl("apply", "-f", "-", stdin=widget)
    kind = f"widgets.{group}"
    ready = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", kind, "w", "--subresource=status", "--type=merge", "-p", ready)
    header, row = rows(kubectl("get", kind).stdout)
    assert header == ["NAME", "SIZE", "READY", "AGE"]
    assert row[:3] == ["w", "3", "True"]
    wide, _ = rows(kubectl("get", kind, "-o", "wide").stdout)
    assert "NOTE" in wide
    invalid = kubectl("apply", "-f", "-", stdin=widget.replace("size: 3", "size: 0"), fails=True).stderr
    assert "spec.size" in invalid
    unknown = kubectl("apply", "-f", "-", stdin=widget.replace("size: 3", "size: 3, colour: red"), fails=True).stderr
    assert 'unknown field "spec.colour"' in unknown
    assert "How large the widget is." in kubectl("explain", "widget.spec.size", f"--api-version={group}/v1").stdout
    kubectl("delete", "crd", f"widgets.{group}")
    kubectl("get", kind, fails=True)


def test_version_and_raw(kubectl: Kubectl) -> None:
    assert "Server Version: v1." in kubectl("version").stdout
    assert kubectl("get", "--raw", "/readyz").stdout == "ok"


def test_namespaces(kubectl: Kubectl, namespace: str) -> None:
    header, *found = rows(kubectl("get", "ns").stdout)
    assert header == ["NAME", "STATUS", "AGE"]
    assert [namespace, "Active"] in [row[:2] for row in found]


def test_everything_at_once(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD + "---" + DEPLOYMENT)
    shown: Any = kubectl("get", "all", "-o", "name").stdout.split()
    assert {"pod/p", "deployment.apps/d"} <= set(shown)
    kubectl("delete", "deploy,pod", "--all")
    assert kubectl("get", "all", "-o", "name").stdout == ""
