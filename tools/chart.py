"""Writes the Helm chart from what kustomize reads: `python -m tools.chart deploy`.

The manifests of `deploy/base` and of the components stand in one place. What kustomize does to them (a namespace,
labels, patches of a component, files in ConfigMaps) becomes templates here; a test holds what Helm renders to what
kustomize does.
"""

import json
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from agent.config import NAMESPACE

Manifest = dict[str, Any]
ROOT: Final = Path(__file__).resolve().parents[1]

SWITCHES: Final[Mapping[str, tuple[str, str]]] = {
    "high-availability": ("highAvailability", "Two agents, one of which leads. Not together with `ledger`."),
    "ledger": ("ledger", "A volume for the ledger's file; `config.ledger.path` names it. For one agent."),
    "mig": ("mig", "For fleets with MIG layouts; the namespace gpu-operator is there."),
    "gpu-readings": ("gpuReadings", "For `config.dcgm`: lets the agent reach dcgm-exporter, at port 9400."),
    "plan-reader": ("planReader", "A service account for `muster plan --world` in CI."),
    "service-monitor": ("serviceMonitor", "For clusters with the Prometheus operator."),
    "alerts": ("alerts", "Recording rules and alerts, for the same."),
    "dashboards": ("dashboards", "For Grafana's sidecar."),
    "admission-policy": ("admissionPolicy", "Work is held from its birth; Kubernetes 1.36 and later."),
}
"""Component -> its value in the chart, and what it is for."""
LEFT_OUT: Final[Mapping[str, str]] = {
    "admission-policy-1.34": "an older API version of `admission-policy`; take kustomize",
}
"""Components without a value, and why."""
EXPLAINED: Final[Mapping[str, str]] = {
    "namespace": "Whether the chart makes its namespace; `helm install --create-namespace` does it without the label "
    "for pod security.",
    "image": "What runs, by digest; else by tag.",
    "serviceAccount": "Annotations such as eks.amazonaws.com/role-arn.",
    "resources": "Of the agent.",
    "tolerations": "Of the agent's pod.",
    "imagePullSecrets": "Of the agent's pod.",
    "config": "The agent's settings (muster.yaml); its `namespace` is that of the release.",
    "files": "Further files beside muster.yaml, such as allowed_signers.",
}


@dataclass(slots=True)
class TemplateMarks:
    """Places in a manifest where a template stands: they are written as marks, and put in once it is text."""

    texts: list[str] = field(default_factory=list)

    def mark(self, template: str) -> str:
        """A mark that stands for lines of a template, written as if at the left edge."""
        self.texts.append(template)
        return f"@@{len(self.texts) - 1}@@"

    def put_in(self, text: str) -> str:
        """The text with every mark replaced: the whole line where one stands alone in it."""
        text = re.sub(r"^( *)(?:[-\w/.]+: |- )?'?@@(\d+)@@'?\n", self._lines, text, flags=re.MULTILINE)
        return re.sub(r"@@(\d+)@@", lambda it: self.texts[int(it[1])], text)

    def _lines(self, found: re.Match[str]) -> str:
        template = self.texts[int(found[2])]
        if not template.startswith("{{-"):
            return found[0].replace(f"'@@{found[2]}@@'", template).replace(f"@@{found[2]}@@", template)
        indent = found[1]
        lines = template.replace("INDENT", str(len(indent) + 2)).splitlines()
        return "".join(f"{indent}{line}\n" for line in lines)


def chart() -> Mapping[str, str]:
    """Path below the chart -> its content."""
    base = _kustomization("base")
    labels = base["labels"][0]["pairs"]
    found = {
        "Chart.yaml": _yaml(_about()),
        "values.yaml": _values_text(),
        "values.schema.json": json.dumps(_schema(values()), indent=2) + "\n",
        ".helmignore": "",
    }
    for name in base["resources"]:
        if name == "../crds":
            for plural in yaml.safe_load((ROOT / "deploy/crds/Kustomization").read_text("utf-8"))["resources"]:
                found[f"crds/{plural}"] = _labelled(ROOT / "deploy/crds" / plural, labels)
            continue
        marks = TemplateMarks()
        documents = [_based(document, labels, marks) for document in _documents(ROOT / "deploy/base" / name)]
        text = _templated(documents, marks)
        found[f"templates/{name}"] = _when("namespace.create", text) if name == "namespace.yaml" else text
    found["templates/config.yaml"] = _CONFIG.replace("LABELS", _indented(labels, 4))
    for component, (value, _) in SWITCHES.items():
        found |= _component(component, value)
    return found


def _about() -> Manifest:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {
        "apiVersion": "v2",
        "name": "muster",
        "description": project["description"],
        "type": "application",
        "version": project["version"],
        "appVersion": project["version"],
        "kubeVersion": ">=1.30.0-0",
    }


def values() -> Manifest:
    """The chart's values, with which it renders what `deploy/base` says."""
    deployment = next(iter(_documents(ROOT / "deploy/base/deployment.yaml")))
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return {
        "namespace": {"create": False},
        "image": {"repository": container["image"], "tag": "", "digest": ""},
        "serviceAccount": {"annotations": {}},
        "resources": container["resources"],
        "tolerations": [],
        "imagePullSecrets": [],
        "config": yaml.safe_load((ROOT / "deploy/base/muster.yaml").read_text("utf-8")),
        "files": {},
        **{value: {"enabled": False} for value, _ in SWITCHES.values()},
    }


def _values_text() -> str:
    told = {**EXPLAINED, **dict(SWITCHES.values())}
    blocks = [f"# {told[key]}\n{_yaml({key: value})}" for key, value in values().items()]
    return "# Written by tools/chart.py (`make schema`).\n" + "\n".join(blocks)


_FREE: Final = frozenset({"annotations", "resources", "config", "files"})
"""Values that are whatever Kubernetes or the agent takes; those checks come later."""


def _schema(value: Any, name: str = "") -> Manifest:
    if isinstance(value, dict) and name not in _FREE:
        parts = {key: _schema(each, key) for key, each in value.items()}
        extra = {} if name else {"global": {"type": "object"}}
        return {"type": "object", "properties": parts | extra, "additionalProperties": False}
    kinds = {dict: "object", list: "array", bool: "boolean", str: "string"}
    return {"type": kinds[type(value)]}


def _based(document: Manifest, labels: Mapping[str, str], marks: TemplateMarks) -> Manifest:
    """A manifest of the base, as kustomize would have it, with marks where values go."""
    metadata = document["metadata"]
    metadata["labels"] = {**metadata.get("labels", {}), **labels}
    if document["kind"] not in _CLUSTER_WIDE:
        metadata.setdefault("namespace", NAMESPACE)
    for subject in document.get("subjects", ()):
        if subject["kind"] == "ServiceAccount":
            subject.setdefault("namespace", NAMESPACE)
    if document["kind"] == "Namespace":
        metadata["name"] = marks.mark("{{ .Release.Namespace }}")
    if document["kind"] == "ServiceAccount":
        metadata["annotations"] = marks.mark(_with("annotations", ".Values.serviceAccount.annotations"))
    if document["kind"] == "Deployment":
        _deployed(document, marks)
    return document


_CLUSTER_WIDE: Final = frozenset(
    {"Namespace", "ClusterRole", "ClusterRoleBinding", "FlowSchema", "PriorityLevelConfiguration"}
)


def _deployed(document: Manifest, marks: TemplateMarks) -> None:
    """The Deployment with its image, what its pod may be given, and the patches of components."""
    template = document["spec"]["template"]
    pod = template["spec"]
    [container] = pod["containers"]
    container["image"] = marks.mark(_IMAGE)
    container["resources"] = marks.mark(_with("resources", ".Values.resources"))
    for key in ("tolerations", "imagePullSecrets"):
        pod[key] = marks.mark(_with(key, f".Values.{key}"))
    digest = "{{ print (toYaml .Values.config) (toYaml .Values.files) | sha256sum }}"
    template["metadata"]["annotations"] = {"muster.dev/config": marks.mark(digest)}
    for component, (value, _) in SWITCHES.items():
        for patch in _kustomization(f"components/{component}").get("patches", ()):
            for operation in yaml.safe_load(patch["patch"]):
                _patched(document, operation, value, marks)


_IMAGE: Final = (
    "{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}"
    "{{ else }}{{ with .Values.image.tag }}:{{ . }}{{ end }}{{ end }}"
)


def _patched(document: Manifest, operation: Mapping[str, Any], value: str, marks: TemplateMarks) -> None:
    """A JSON patch of a component as a condition at its place; `add` to a list, `add` of a key, or `replace`."""
    *way, last = operation["path"].strip("/").split("/")
    place: Any = document
    for key in way:
        place = place[int(key)] if isinstance(place, list) else place[key]
    if last == "-":
        item = _yaml([operation["value"]])
        place.append(marks.mark(f"{{{{- if .Values.{value}.enabled }}}}\n{item}{{{{- end }}}}"))
        return
    otherwise = f"{{{{- else }}}}\n{_yaml({last: place[last]})}" if last in place else ""
    then = _yaml({last: operation["value"]})
    place[last] = marks.mark(f"{{{{- if .Values.{value}.enabled }}}}\n{then}{otherwise}{{{{- end }}}}")


def _with(key: str, value: str) -> str:
    return f"{{{{- with {value} }}}}\n{key}: {{{{- toYaml . | nindent INDENT }}}}\n{{{{- end }}}}"


def _component(component: str, value: str) -> Mapping[str, str]:
    """The templates of a component, under its switch."""
    content, folder = _kustomization(f"components/{component}"), ROOT / "deploy/components" / component
    found = {}
    for name in content.get("resources", ()):
        text = _templated(_documents(folder / name), TemplateMarks())
        found[f"templates/{component}-{name}"] = _when(f"{value}.enabled", text)
    for generator in content.get("configMapGenerator", ()):
        head = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": generator["name"],
                "namespace": generator["namespace"],
                "labels": generator["options"]["labels"],
            },
        }
        data = [f'  {name}: {{{{- .Files.Get "files/{name}" | toYaml | nindent 4 }}}}' for name in generator["files"]]
        text = _templated([head], TemplateMarks()) + "data:\n" + "\n".join(data) + "\n"
        found[f"templates/{component}.yaml"] = _when(f"{value}.enabled", text)
        found |= {f"files/{name}": (folder / name).read_text("utf-8") for name in generator["files"]}
    return found


_CONFIG: Final = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: muster
  namespace: {{ .Release.Namespace }}
  labels:
LABELS
data:
  muster.yaml: |
    {{- merge (dict "namespace" .Release.Namespace) .Values.config | toYaml | nindent 4 }}
  {{- with .Values.files }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
"""


def _templated(documents: Iterator[Manifest] | list[Manifest], marks: TemplateMarks) -> str:
    """Manifests as a template: braces of others are kept from Helm, and the namespace is that of the release."""
    text = "---\n".join(map(_yaml, documents))
    text = text.replace("{{", '{{ "{{" }}')
    text = re.sub(rf"(namespace:|-) {NAMESPACE}\n", r"\1 {{ .Release.Namespace }}\n", text)
    return marks.put_in(text)


def _when(value: str, text: str) -> str:
    return f"{{{{- if .Values.{value} }}}}\n{text}{{{{- end }}}}\n"


def _labelled(path: Path, labels: Mapping[str, str]) -> str:
    [document] = _documents(path)
    document["metadata"]["labels"] = dict(labels)
    return _yaml(document)


def _indented(value: Mapping[str, str], by: int) -> str:
    return "\n".join(" " * by + line for line in _yaml(dict(value)).splitlines())


def _kustomization(folder: str) -> Manifest:
    found: Manifest = yaml.safe_load((ROOT / "deploy" / folder / "kustomization.yaml").read_text("utf-8"))
    return found


def _documents(path: Path) -> Iterator[Manifest]:
    yield from yaml.safe_load_all(path.read_text("utf-8"))


def _yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, width=120, allow_unicode=True))


def main(folder: Path) -> None:
    """Writes the chart anew below `folder`."""
    place = folder / "chart"
    shutil.rmtree(place, ignore_errors=True)
    for name, content in chart().items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
