"""The scalar types and small rules of the kinds, as code uses them (the loader's view is in loader/)."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from model.kinds import KINDS, NEVER, Budget, NodePool, Taint, Toleration
from model.kinds.base import Duration, format_duration
from model.kinds.node_pool import DisruptionSpec, Sharing
from model.kinds.tenancy import IdleGpuPolicy
from model.loader import InvalidFleet, load
from model.problem import Code
from model.upstream.manifests import UPSTREAM_KINDS

ENVELOPE = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "p"}}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("10m", 600), ("1h30m", 5400), ("0s", 0), ("2h0m5s", 7205), ("Never", NEVER), (90.0, 90)],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert DisruptionSpec.model_validate({"consolidateAfter": text}).consolidate_after == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "1d", "-5s", "5 m", "1m1h", "never", "1.5h", "٣s", "9999999999h", -1.0, 5, None]
)
def test_no_durations(text: object) -> None:
    with pytest.raises(ValidationError):
        DisruptionSpec.model_validate({"consolidateAfter": text})


@given(st.integers(0, 10**8))
def test_durations_read_back(seconds: int) -> None:
    text = format_duration(float(seconds))
    assert DisruptionSpec.model_validate({"consolidateAfter": text}).consolidate_after == seconds


def test_a_declaration_reads_back_from_its_own_json() -> None:
    spec = {
        "limits": {"resources": {"cpu": "1500m", "memory": "64Gi", "nvidia.com/gpu": 8}, "usdPerHour": 12.5},
        "template": {"expireAfter": "Never", "taints": [{"key": "a", "effect": "NoSchedule"}]},
        "disruption": {"budgets": [{"nodes": "10%"}, {"nodes": 2, "schedule": "@daily", "duration": "1h"}]},
    }
    pool = NodePool.model_validate({**ENVELOPE, "spec": spec})
    again = NodePool.model_validate(json.loads(pool.model_dump_json(by_alias=True)))
    assert again == pool
    assert pool.spec.limits.resources == {"cpu": 1500, "memory": 64 << 30, "nvidia.com/gpu": 8}


def test_declarations_do_not_change() -> None:
    pool = NodePool.model_validate({**ENVELOPE, "spec": {}})
    with pytest.raises(ValidationError):
        pool.spec.weight = 5


TAINT = Taint(key="gpu", value="a", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "gpu", "value": "a"}, True),
        ({"key": "gpu", "value": "b"}, False),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"value": "a"}, False),  # an empty key needs Exists
    ],
)
def test_tolerations(toleration: dict[str, str], expected: bool) -> None:
    assert Toleration.model_validate(toleration).tolerates(TAINT) is expected


@pytest.mark.parametrize(
    ("sharing", "replicas"),
    [({}, 1), ({"mps": {"replicas": 4}}, 4), ({"timeSlicing": {"replicas": 8}}, 8), ({"mig": {"layouts": ["x"]}}, 1)],
)
def test_replicas(sharing: dict[str, object], replicas: int) -> None:
    assert Sharing.model_validate(sharing).replicas == replicas


@pytest.mark.parametrize("nodes", ["0%", "7%", "100%", 0, 50])
def test_budget_nodes(nodes: str | int) -> None:
    assert Budget.model_validate({"nodes": nodes}).nodes == nodes


@pytest.mark.parametrize("nodes", ["101%", "1000%", "5", "-1%", "5.5%", "%", -1, 2.5, True, "5%\n"])
def test_no_budget_nodes(nodes: object) -> None:
    with pytest.raises(ValidationError):
        Budget.model_validate({"nodes": nodes})


def test_every_kind_has_a_plural_of_its_own() -> None:
    plurals = [kind.plural for kind in KINDS]
    assert len(set(plurals)) == len(KINDS)
    assert all(plural.islower() and plural.endswith("s") for plural in plurals)


# -- bounds -----------------------------------------------------------------------------------------------------------


def _numbers(schema: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every place in a JSON schema where an integer may stand."""
    if isinstance(schema, Mapping):
        if schema.get("type") == "integer":
            yield path, schema
        for key, value in schema.items():
            yield from _numbers(value, f"{path}/{key}")
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            yield from _numbers(value, f"{path}/{index}")


@pytest.mark.parametrize("kind", [*KINDS, *UPSTREAM_KINDS], ids=lambda kind: kind.__name__)
def test_every_count_has_an_upper_bound(kind: Any) -> None:
    """A slip of three zeros is told where it stands, before anything is planned with it."""
    schema = kind.model_json_schema(by_alias=True)
    unbounded = [path for path, found in _numbers(schema) if "maximum" not in found and "enum" not in found]
    assert unbounded == []


def test_a_fleet_has_no_more_fixed_machines_than_a_cluster_has_nodes() -> None:
    def pool(name: str, replicas: int) -> str:
        return (
            "apiVersion: muster.dev/v1alpha1\nkind: NodePool\n"
            f"metadata: {{name: {name}}}\nspec: {{instanceTypes: [p5.48xlarge], replicas: {replicas}}}\n"
        )

    files = {"a.yaml": pool("a", 60_000).encode(), "b.yaml": pool("b", 60_000).encode()}
    with pytest.raises(InvalidFleet) as caught:
        load(files)
    (problem,) = caught.value.problems
    assert (problem.file, problem.path, problem.code) == ("b.yaml", "spec.replicas", Code.TOO_LARGE)
    assert "120000 machines" in problem.message
    with pytest.raises(InvalidFleet) as caught:
        load({"a.yaml": pool("a", 10**18).encode()})
    assert [it.path for it in caught.value.problems] == ["spec.replicas"]


@pytest.mark.parametrize("text", ["87601h", "999999999s", "87600h1s"])
def test_a_duration_of_more_than_ten_years_is_a_slip(text: str) -> None:
    with pytest.raises(ValidationError, match="87600h"):
        TypeAdapter(Duration).validate_python(text)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"after": "59s"}, "at least 1m"),
        ({"action": "Stop", "after": "Never"}, "needs a time"),
        ({"action": "Kill"}, "Warn"),
        ({"afterwards": "1h"}, "afterwards"),
    ],
)
def test_idle_gpus_that_cannot_be_borne_so(said: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        IdleGpuPolicy.model_validate(said)


def test_idle_gpus_are_told_of_after_an_hour_unless_a_queue_says_otherwise() -> None:
    plain = IdleGpuPolicy()
    assert (plain.after, plain.action) == (3600.0, "Warn")
    assert IdleGpuPolicy.model_validate({"after": "Never"}).after == NEVER
