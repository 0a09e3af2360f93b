"""The page of workloads names every kind, and its examples are work that the agent takes as it stands."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.snapshot import Hold
from fleet.snapshot.works import works
from model.index import Index
from providers.kube.objects import DECODERS, decode_pod, decode_pod_budget, decode_pod_group
from providers.kube.objects.jobs import KINDS
from providers.kube.objects.names import (
    CHECKPOINT_INTERVAL,
    EXPECTED_RUN,
    KUEUE_MAX_RUN,
    LAST_CHECKPOINT,
    MAX_RUN,
    PRIORITY_BOOST,
    SLA_WAITING,
)
from providers.kube.objects.topology import GROUP_NAME, PREFERRED, REQUIRED, SLICE_LAYERS, SLICE_SIZE, SLICE_TOPOLOGY

PAGE = (Path(__file__).resolve().parents[2] / "docs/guides/workloads.md").read_text("utf-8")
FENCES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLES: list[dict[str, Any]] = [document for text in FENCES for document in yaml.safe_load_all(text)]

OTHERS = {"Pod", "PodGroup", "PodDisruptionBudget"}


def raw(manifest: dict[str, Any]) -> bytes:
    name = manifest["metadata"]["name"]
    meta = {
        **manifest["metadata"],
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "creationTimestamp": "2027-01-15T08:00:00Z",
    }
    return json.dumps({**manifest, "metadata": meta}).encode()


def test_the_table_names_every_kind() -> None:
    table = PAGE[PAGE.index("| kind | API") : PAGE.index("*Ready*")]
    for kind in KINDS:
        (row,) = [line for line in table.splitlines() if f"`{kind.path.api_version()}`" in line and kind.kind in line]
        assert "templates" in row or kind.kind in {"Job", "TrainJob"} or kind.hold is Hold.PODS


@pytest.mark.parametrize("name", [REQUIRED, PREFERRED, GROUP_NAME, SLICE_TOPOLOGY, SLICE_SIZE, SLICE_LAYERS])
def test_the_page_names_every_annotation(name: tuple[str, str]) -> None:
    assert f"`{name[0].removeprefix('muster.dev/')}`" in PAGE


@pytest.mark.parametrize(
    "name", [EXPECTED_RUN, MAX_RUN, KUEUE_MAX_RUN, *SLA_WAITING, *PRIORITY_BOOST, LAST_CHECKPOINT, CHECKPOINT_INTERVAL]
)
def test_the_page_names_what_a_job_may_say_of_its_run(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize(
    "manifest", [it for it in EXAMPLES if it["kind"] not in OTHERS], ids=lambda it: it["apiVersion"] + it["kind"]
)
def test_the_jobs_are_managed(manifest: dict[str, Any]) -> None:
    job = DECODERS[manifest["apiVersion"].rpartition("/")[0], manifest["kind"]](raw(manifest))
    assert (job.queue, job.suspended) == ("research", True)
    assert sum(one.count * one.requests.get("nvidia.com/gpu", 0) for one in job.pod_sets) in {16, 32}


def test_the_sub_groups_start_when_as_many_are_whole_as_it_says() -> None:
    [terms] = [decode_pod_group(raw(it)) for it in EXAMPLES if it["kind"] == "PodGroup"]
    template = next(it for it in EXAMPLES if it["kind"] == "Pod")
    mark = {"scheduling.k8s.io/group-name": terms.group}
    pods = []
    for name in (f"r{replica}-{n}" for replica in range(3) for n in range(4)):
        labels = {"muster.dev/queue": "research", "muster.dev/pod-set": name.partition("-")[0]}
        meta = {"name": name, "namespace": terms.namespace, "labels": labels, "annotations": mark}
        pods.append(decode_pod(raw({**template, "metadata": meta})))
    [job] = works(Index(), {}, {"g": tuple(pods)}, {terms.key: terms}).values()
    assert {it.name: (it.count, it.core) for it in job.pod_sets} == {"r0": (4, 4), "r1": (4, 4), "r2": (4, 0)}
    assert not any(it.unsupported for it in job.pod_sets)


def test_the_budget_is_read() -> None:
    (budget,) = [decode_pod_budget(raw(it)) for it in EXAMPLES if it["kind"] == "PodDisruptionBudget"]
    assert budget.selector is not None
    assert budget.selector.matches({"job-name": "llm"})


def test_the_pods_are_one_group() -> None:
    pods = tuple(decode_pod(raw(it)) for it in EXAMPLES if it["kind"] == "Pod")
    (job,) = works(Index(), {}, {pods[0].job_uid: pods}).values()
    assert (job.ref.name, job.queue, [one.count for one in job.pod_sets]) == ("solve", "research", [2])
