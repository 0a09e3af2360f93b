"""Manifests that are for other programs get a sentence that says what they are, why they are not read, what to do."""

from collections.abc import Callable

import pytest

from model import report
from model.problem import Code, Problem

Load = Callable[..., list[Problem]]

KINDS = [
    ("v1", "Secret", "is a Secret", "reads no secret from git", "remove it and change what it holds"),
    ("v1", "ConfigMap", "is an object of Kubernetes", "applies nothing", "applied to the cluster"),
    ("v1", "Namespace", "is an object of Kubernetes", "applies nothing", "applied to the cluster"),
    ("v1", "Pod", "is work", "declares capacity", "submit it to the cluster"),
    ("v1", "Node", "is a machine", "observed", "NodePool"),
    ("v1", "ResourceQuota", "is a quota of a namespace", "", "Team"),
    ("v1", "List", "is a list", "a document of its own", "---"),
    ("batch/v1", "Job", "is work", "", "submit it"),
    ("apps/v1", "Deployment", "is work", "", "without being declared"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet", "is work", "", "submit it"),
    ("kubeflow.org/v1", "PyTorchJob", "is work", "", "submit it"),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob", "is work", "", "submit it"),
    ("ray.io/v1", "RayCluster", "is work", "", "submit it"),
    ("batch.volcano.sh/v1alpha1", "Job", "is work", "", "submit it"),
    ("scheduling.k8s.io/v1", "PriorityClass", "is a PriorityClass of Kubernetes", "gangs", "muster.dev/v1alpha1"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "is a permission", "", "applied to the cluster"),
    ("networking.k8s.io/v1", "NetworkPolicy", "is an object of Kubernetes", "", ""),
    ("policy/v1", "PodDisruptionBudget", "is an object of Kubernetes", "", ""),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "is a custom resource definition", "", ""),
    ("kustomize.config.k8s.io/v1beta1", "Kustomization", "is a kustomization", "builds nothing", "outside"),
    ("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "is configuration of Flux", "", "outside"),
    ("source.toolkit.fluxcd.io/v1", "GitRepository", "is configuration of Flux", "", "outside"),
    ("helm.toolkit.fluxcd.io/v2", "HelmRelease", "is configuration of Flux", "", "outside"),
    ("argoproj.io/v1alpha1", "Application", "is configuration of Argo", "", "outside"),
    ("eksctl.io/v1alpha5", "ClusterConfig", "is configuration of eksctl", "", "outside"),
    ("muster.dev/v1alpha1", "NodeClaim", "is an object that the agent writes", "no declaration", "remove it"),
    ("muster.dev/v1alpha1", "FleetSync", "is an object that the agent writes", "no declaration", "remove it"),
]


@pytest.mark.parametrize(("version", "kind", "what", "why", "do"), KINDS)
def test_foreign_kinds(problems: Load, version: str, kind: str, what: str, why: str, do: str) -> None:
    (problem,) = problems(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n")
    assert (problem.code, problem.severity, problem.line) == (Code.FOREIGN_KIND, "error", 2)
    assert problem.message.startswith(f"{version} {kind} {what}, not a declaration of a fleet: ")
    assert why in problem.message
    assert do in problem.hint


SHAPES = [
    ("resources: [a.yaml]\nnamePrefix: x-\n", "a kustomization"),
    ("replicaCount: 1\nimage: {}\n", "values of a Helm chart"),
    ("services: {web: {}}\n", "a Compose file"),
    ("on: push\njobs: {}\n", "configuration of a CI system"),
    ("apiVersion: v2\nname: chart\nversion: 1.0.0\n", "a Helm chart"),
]


@pytest.mark.parametrize(("document", "what"), SHAPES)
def test_files_of_tools(problems: Load, document: str, what: str) -> None:
    (problem,) = problems(document)
    assert problem.code is Code.FOREIGN_KIND
    assert what in problem.message
    assert "outside the fleet's folder" in problem.hint


def test_a_template_is_no_yaml(problems: Load) -> None:
    (problem,) = problems("apiVersion: v1\n{{- if .Values.x }}\nkind: Service\n{{- end }}\n")
    assert problem.code is Code.YAML_SYNTAX
    assert "template of Helm" in problem.hint


SLIPS = [
    ("apiVersion: muster.dev/v1\nkind: Team", "unknown apiVersion"),
    ("apiVersion: v1\nkind: Team", "unknown apiVersion"),
    ("apiVersion: mustr.dev/v1alpha1\nkind: Team", "unknown apiVersion"),
    ("apiVersion: muster.dev/v1alpha1\nkind: Teem", "unknown kind"),
    ("apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQeue", "unknown kind"),
]


@pytest.mark.parametrize(("document", "message"), SLIPS)
def test_slips_in_kinds_of_ours_stay_slips(problems: Load, document: str, message: str) -> None:
    (problem,) = problems(f"{document}\nmetadata: {{name: x}}\nspec: {{}}\n")
    assert message in problem.message
    assert problem.code is Code.UNKNOWN_KIND


SECRETS = [
    "apiVersion: v1\nkind: Secret\nstringData: {password: hunter2}\n",
    "{apiVersion: v1, kind: Secret, data: {password: hunter2}}\n",
    "apiVersion: v1\n'kind' : \"Secret\"\nstringData:\n  password: hunter2\n",
    "apiVersion: v1\nkind: Secret\nstringData:\n  password: hunter2\n  password: hunter2\n",
    "apiVersion: v1\nkind: Secret\nstringData:\n  password: [hunter2\n",
    "apiVersion: muster.dev/v1alpha1\nkind: Team\nmetadata: {name: x}\nspek: {}\n---\nkind: Secret\ndata: hunter2\n",
    "kind: Secret\nstringData: {password: hunter2}\n",
    "apiVersion: v9\nkind: Secret\nstringData: {password: hunter2}\n",
]


@pytest.mark.parametrize("document", SECRETS)
def test_no_line_of_a_secret_is_shown(problems: Load, document: str) -> None:
    found = problems(document)
    assert found
    for render in report.FORMATS.values():
        assert "hunter2" not in render(found)
    assert "hunter2" not in "".join(map(repr, found))
