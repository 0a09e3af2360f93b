"""What a mistake in one declaration is called, and where it is shown."""

import pytest

from model.loader import inspect
from model.problem import Code

ENVELOPE = "apiVersion: muster.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: x}}\n"
POOL, QUEUE, TEAM = (ENVELOPE.format(kind=kind) + "spec: " for kind in ("NodePool", "Queue", "Team"))
LAYOUT, POLICY, FLAVOR = (ENVELOPE.format(kind=kind) + "spec: " for kind in ("MigLayout", "FleetPolicy", "Flavor"))

CASES = [
    # unknown and missing keys
    (POOL + "{zonez: []}", 4, 8, "spec.zonez", "unknown key 'zonez'", "did you mean 'zones'?"),
    (POOL + "{instance_types: []}", 4, 8, "spec.instance_types", "unknown key 'instance_types'", "'instanceTypes'"),
    (POOL + "{gpu: {count: 8}}", 4, 14, "spec.gpu.count", "unknown key 'count'", "'maxCount', 'minCount'"),
    (POOL + "{wholly: 1}", 4, 8, "spec.wholly", "unknown key 'wholly'", "known here: 'capacityTypes'"),
    (QUEUE + "{flavors: [a]}", 4, 7, "spec", "the key 'team' is required", ""),
    (QUEUE + "{tem: a, flavors: [a]}", 4, 7, "spec", "the key 'team' is required", "did you mean 'tem'?"),
    (TEAM.replace("{name: x}", "{}") + "{}", 3, 11, "metadata", "the key 'name' is required", ""),
    (TEAM.removesuffix("spec: "), 1, 1, "", "the key 'spec' is required", ""),
    # types
    (POOL + "{replicas: '3'}", 4, 18, "spec.replicas", "must be a whole number", "remove the quotes"),
    (POOL + "{replicas: 3.5}", 4, 18, "spec.replicas", "must be a whole number", ""),
    (POOL + "{replicas: 012}", 4, 18, "spec.replicas", "must be a whole number", "leading 0"),
    (POOL + "{replicas: 0x10}", 4, 18, "spec.replicas", "must be a whole number", "decimal digits"),
    (POOL + "{replicas: 1_0}", 4, 18, "spec.replicas", "must be a whole number", "without underscores"),
    (POOL + "{replicas: true}", 4, 18, "spec.replicas", "must be a whole number", ""),
    (POOL + "{replicas: -1}", 4, 18, "spec.replicas", "must be at least 0", ""),
    (POOL + "{weight: 101}", 4, 16, "spec.weight", "must be at most 100", ""),
    (POOL + "{limits: {usdPerHour: 1e3}}", 4, 29, "spec.limits.usdPerHour", "must be a number", "without an exponent"),
    (POOL + "{limits: {usdPerHour: .inf}}", 4, 29, "spec.limits.usdPerHour", "must be a number", "ordinary number"),
    (POOL + "{limits: {usdPerHour: '5'}}", 4, 29, "spec.limits.usdPerHour", "must be a number", "remove the quotes"),
    (POOL + "{placement: {efa: yes}}", 4, 25, "spec.placement.efa", "must be true or false", "write true or false"),
    (POOL + "{placement: {efa: 1}}", 4, 25, "spec.placement.efa", "must be true or false", ""),
    (POOL + "{instanceTypes: p5.48xlarge}", 4, 23, "spec.instanceTypes", "must be a list", "write [p5.48xlarge]"),
    (POOL + "{instanceTypes: [5]}", 4, 24, "spec.instanceTypes[0]", "must be text", 'quote it: "5"'),
    (POOL + "{template: {labels: {v: 1.10}}}", 4, 31, "spec.template.labels.v", "must be text", 'quote it: "1.10"'),
    (POOL + "{template: {labels: {v: true}}}", 4, 31, "spec.template.labels.v", "must be text", 'quote it: "true"'),
    (POOL + "{gpu: 8}", 4, 13, "spec.gpu", "must be a mapping", ""),
    (POOL + "\n  gpu:\n  zones:", 6, 9, "spec.zones", "must be a list", "remove the key"),
    # values
    (POOL + "{capacityTypes: [Spot]}", 4, 24, "spec.capacityTypes[0]", "must be 'reserved', 'spot'", "mean 'spot'?"),
    (QUEUE + "{team: a, flavors: []}", 4, 26, "spec.flavors", "needs at least 1 item", ""),
    (POOL + "{template: {expireAfter: 5}}", 4, 32, "spec.template.expireAfter", "a duration is written like", ""),
    (POOL + "{template: {expireAfter: 5.0}}", 4, 32, "spec.template.expireAfter", "a duration is written like", ""),
    (POOL + "{template: {expireAfter: 1d}}", 4, 32, "spec.template.expireAfter", "a duration is written like", ""),
    (POOL + "{limits: {resources: {cpu: 5 Gi}}}", 4, 34, "spec.limits.resources.cpu", "'5 Gi' is not a quantity", ""),
    (POOL + "{limits: {resources: {cpu: -1}}}", 4, 34, "spec.limits.resources.cpu", "-1 is negative", ""),
    (POOL + "{limits: {resources: {a b: 1}}}", 4, 34, 'spec.limits.resources["a b"]', "is not a label key", ""),
    (POOL + "{template: {labels: {a b: c}}}", 4, 28, 'spec.template.labels["a b"]', "is not a label key", ""),
    (POOL + "{template: {labels: {-x/y: c}}}", 4, 28, 'spec.template.labels["-x/y"]', "must be a DNS name", ""),
    (POOL + "{template: {labels: {a: -}}}", 4, 31, "spec.template.labels.a", "is not a label value", ""),
    (POOL + "{template: {taints: [{key: k, effect: No}]}}", 4, 45, "spec.template.taints[0].effect", "must be", ""),
    (POOL + "{disruption: {budgets: [{nodes: 101%}]}}", 4, 39, "spec.disruption.budgets[0].nodes",
     "must be a whole number or a percentage like 10%", ""),
    (POOL + "{disruption: {budgets: [{nodes: -1}]}}", 4, 39, "spec.disruption.budgets[0].nodes",
     "must be at least 0", ""),
    (LAYOUT + "{models: {a: [{devices: some}]}}", 4, 31, "spec.models.a[0].devices", "must be 'all' or a list", ""),
    (LAYOUT + "{models: {a: [{devices: [0, x]}]}}", 4, 35, "spec.models.a[0].devices[1]", "must be a whole number", ""),
    (LAYOUT + "{models: {a: [{devices: [0, 16]}]}}", 4, 35, "spec.models.a[0].devices[1]", "must be at most 15", ""),
    (POLICY + "{notifications: [{name: a, addressEnv: 'https://x'}]}", 4, 46, "spec.notifications[0].addressEnv",
     "must be the name of an environment variable", ""),
    (TEAM + "{namespaces: [a.b]}", 4, 21, "spec.namespaces[0]", "a namespace is", ""),
    # rules of a whole mapping
    (FLAVOR + "{}", 4, 7, "spec", "give exactly one of nodePools and nodeLabels", ""),
    (POOL + "{sharing: {mig: {layouts: [a]}, mps: {replicas: 2}}}", 4, 17, "spec.sharing", "choose one of", ""),
    (POOL + "{replicas: 1, weight: 1}", 4, 7, "spec", "has no weight", ""),
    (POOL + "{disruption: {budgets: [{schedule: '@daily'}]}}", 4, 31, "spec.disruption.budgets[0]", "go together", ""),
    (POOL + "{repair: [{condition: Ready, statuses: ['True'], after: 5m}]}", 4, 17, "spec.repair[0]",
     "of Ready choose from False and Unknown", ""),
    (TEAM + "{quotas: {f: {guaranteed: {}, lendingLimit: {cpu: 1}}}}", 4, 20, "spec.quotas.f", "a limit for cpu", ""),
    (POOL + "{template: {amis: [{id: a, ssmParameter: b}]}}", 4, 26, "spec.template.amis[0]", "exactly one of", ""),
    (POOL + "{template: {ami: {id: a}}}", 4, 19, "spec.template.ami", "unknown key", "did you mean 'amis'?"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "path", "message", "hint"), CASES)
def test_one_mistake(text: str, line: int, column: int, path: str, message: str, hint: str) -> None:
    found = inspect({"f.yaml": text.encode()}).problems
    assert [(one.line, one.column, one.path) for one in found if path == one.path] == [(line, column, path)]
    problem = next(one for one in found if one.path == path)
    assert message in problem.message
    assert hint in problem.hint
    assert str(problem).startswith(f"f.yaml:{line}:{column}: ")
    assert problem.excerpt.count("^") == 1


def test_one_mistake_is_one_problem() -> None:
    """But for the misspelt key that also leaves a required one missing."""
    several = [text for text, *_ in CASES if len(inspect({"f.yaml": text.encode()}).problems) != 1]
    assert several == [QUEUE + "{tem: a, flavors: [a]}"]


ENVELOPES = [
    ("kind: Team\nmetadata: {name: x}\nspec: {}", 1, 1, "the key 'apiVersion' is required", Code.MISSING_KEY),
    ("apiVersion: muster.dev/v1alpha1\nspec: {}", 1, 1, "the key 'kind' is required", Code.MISSING_KEY),
    ("apiVersion: muster.dev/v1\nkind: Team", 1, 13, "unknown apiVersion 'muster.dev/v1'", Code.UNKNOWN_KIND),
    ("apiVersion: muster.dev/v1alpha1\nkind: Qeue", 2, 7, "unknown kind 'Qeue'", Code.UNKNOWN_KIND),
    ("apiVersion: muster.dev/v1alpha1\nkind: [Queue]", 2, 7, "unknown kind ['Queue']", Code.UNKNOWN_KIND),
    ("apiVersion: {a: b}\nkind: Queue", 1, 13, "unknown apiVersion", Code.UNKNOWN_KIND),
    ("apiVersion: v1\nkind: ConfigMap", 2, 7, "v1 ConfigMap is an object of Kubernetes", Code.FOREIGN_KIND),
    ("on: push\njobs: {}", 1, 1, "looks like configuration of a CI system", Code.FOREIGN_KIND),
    ("resources: [a.yaml]", 1, 1, "looks like a kustomization", Code.FOREIGN_KIND),
    ("apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner", 2, 7, "is not supported", Code.UNSUPPORTED),
    ("apiVersion: karpenter.sh/v1\nkind: NodeClaim", 2, 7, "is not supported", Code.UNSUPPORTED),
    ("apiVersion: karpenter.sh/v2\nkind: NodePool", 1, 13, "is not read in the version", Code.UNKNOWN_KIND),
    ("apiVersion: karpenter.azure.com/v1\nkind: AKSNodeClass", 1, 13, "unknown apiVersion", Code.UNKNOWN_KIND),
    ("apiVersion: batch.volcano.sh/v1alpha1\nkind: Job", 2, 7, "is work", Code.FOREIGN_KIND),
    ("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration", 1, 13, "is not read yet", Code.NOT_READ_YET),
    ("apiVersion: kueue.x-k8s.io/v1alpha1\nkind: Cohort", 1, 13, "not read in the version", Code.UNKNOWN_KIND),
    ("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQeue", 2, 7, "unknown kind 'ClusterQeue' of", Code.UNKNOWN_KIND),
    ("apiVersion: kueue.x-k8s.io/v1beta2", 1, 1, "the key 'kind' is required", Code.MISSING_KEY),
    ("apiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload", 2, 7, "Workload is not supported", Code.UNSUPPORTED),
    ("apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup", 2, 7, "is not supported", Code.UNSUPPORTED),
    ("version: v1\nmig-configs: {}", 2, 14, "at least one configuration is required", Code.INVALID_VALUE),
]


@pytest.mark.parametrize(("text", "line", "column", "message", "code"), ENVELOPES)
def test_envelope(text: str, line: int, column: int, message: str, code: Code) -> None:
    (problem,) = inspect({"f.yaml": text.encode()}).problems
    assert (problem.line, problem.column, problem.code) == (line, column, code)
    assert message in problem.message
