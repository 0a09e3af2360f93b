"""Labels and annotations with our prefix: those that nothing reads are told, and none that is read is missing."""

import json
from itertools import chain
from typing import Any

import pytest

from model import labels
from providers.kube.objects import names, topology
from providers.kube.objects.jobs.registry import DECODERS
from providers.kube.objects.known_keys import OF_OTHERS, OF_USERS, KeyedObject, KeyHolder, misread_keys
from providers.kube.objects.pod_groups import member_of

NOT_OF_WORK = {names.API_VERSION}


def constants(module: Any) -> set[str]:
    """The names with our prefix among the constants of a module."""
    values = (it for name, it in vars(module).items() if name.isupper())
    texts = chain.from_iterable((it,) if isinstance(it, str) else it for it in values if isinstance(it, str | tuple))
    return {it for it in texts if isinstance(it, str) and it.startswith("muster.dev/")}


def test_every_name_that_is_read_or_written_is_in_the_table() -> None:
    assert not OF_USERS.keys() & OF_OTHERS
    found = set().union(*map(constants, (labels, names, topology)))
    assert len(found) > 30
    assert found - NOT_OF_WORK == OF_USERS.keys() | OF_OTHERS


def keyed(
    holder: KeyHolder, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None
) -> KeyedObject:
    whose = "pods of a: " if holder is KeyHolder.TEMPLATE else ""
    return KeyedObject(frozenset({holder}), labels, annotations, whose)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("muster.dev/expected-duration", "no annotation of that name is known"),
        ("muster.dev/max-runtime", "no annotation of that name is known; did you mean muster.dev/max-run-time?"),
        ("muster.dev/Queue", "no annotation of that name is known; did you mean muster.dev/queue?"),
        ("muster.dev/workloads", "no annotation of that name is known"),
    ],
)
def test_an_unknown_name_is_told_with_the_one_that_may_be_meant(key: str, words: str) -> None:
    (told,) = misread_keys([keyed(KeyHolder.JOB, {}, {key: "1"})])
    assert told.path == f"metadata.annotations[{key}]"
    assert told.words.startswith(words)


@pytest.mark.parametrize("holder", KeyHolder)
@pytest.mark.parametrize(
    "key", sorted(OF_OTHERS | {"muster.dev", "example.com/x", "sim.muster.dev/run-seconds", "kueue.x-k8s.io/y"})
)
def test_names_of_others_are_not_told(key: str, holder: KeyHolder) -> None:
    assert not list(misread_keys([keyed(holder, {key: "1"}, {key: "1"})]))


@pytest.mark.parametrize("key", sorted(OF_USERS))
def test_what_users_say_is_told_everywhere_but_where_it_is_read(key: str) -> None:
    read = OF_USERS[key]
    for holder in KeyHolder:
        for where in ("labels", "annotations"):
            told = list(misread_keys([keyed(holder, **{where: {key: "1"}})]))
            assert (told == []) is (where == read.where and holder in read.holders), (holder, where)


J, T, P, B = KeyHolder.JOB, KeyHolder.TEMPLATE, KeyHolder.POD, KeyHolder.BATCH_JOB


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            keyed(J, None, {"muster.dev/queue": "q"}),
            "no annotation of that name is read there: it is a label of the job",
        ),
        (keyed(T, {"muster.dev/queue": "q"}), "no label of that name is read there: it is a label of the job"),
        (
            keyed(T, None, {"muster.dev/max-run-time": "1h"}),
            "no annotation of that name is read there: it is an annotation of the job",
        ),
        (
            keyed(J, None, {"muster.dev/podset-required-topology": "x"}),
            "no annotation of that name is read there: it is an annotation of the pod template",
        ),
        (
            keyed(J, None, {"muster.dev/job-min-parallelism": "2"}),
            "no annotation of that name is read there: it is an annotation of a Job of batch/v1",
        ),
        (
            keyed(P, None, {"muster.dev/pod-group-name": "g"}),
            "no annotation of that name is read there: it is a label of a pod on a queue",
        ),
        (
            keyed(T, {"muster.dev/pod-group-name": "g"}),
            "no label of that name is read there: it is a label of a pod on a queue",
        ),
    ],
)
def test_a_name_in_the_wrong_place_is_told_with_the_right_one(found: KeyedObject, words: str) -> None:
    (told,) = misread_keys([found])
    assert told.words == words


@pytest.mark.parametrize(
    ("objects", "paths"),
    [
        ([keyed(J, {"muster.dev/queue": "q"}), keyed(T, {"muster.dev/queue": "q"})], []),
        (
            [keyed(J, {"muster.dev/queue": "q"}), keyed(T, {"muster.dev/queue": "other"})],
            ["pods of a: metadata.labels[muster.dev/queue]"],
        ),
        ([keyed(J, {"muster.dev/queue": "q"}, {"muster.dev/queue": "q"})], []),
        (
            [
                keyed(J, None, {"muster.dev/podset-required-topology": "x"}),
                keyed(T, None, {"muster.dev/podset-required-topology": "x"}),
            ],
            [],
        ),
    ],
)
def test_what_is_also_said_where_it_is_read_is_no_mistake(objects: list[KeyedObject], paths: list[str]) -> None:
    """As kustomize writes common labels and annotations."""
    assert [it.path for it in misread_keys(objects)] == paths


def test_no_more_than_some_are_told() -> None:
    many = keyed(J, {f"muster.dev/x{number}": "" for number in range(1000)})
    assert 1 < len(list(misread_keys([many]))) < 10


def test_of_a_job_its_own_and_those_of_its_template_are_told() -> None:
    template = {"metadata": {"labels": {"muster.dev/pod-sett": "a"}}, "spec": {"containers": []}}
    found = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a", "namespace": "b", "uid": "u", "annotations": {"muster.dev/max-run": "2h"}},
        "spec": {"template": template, "suspend": True},
    }
    job = DECODERS["batch", "Job"](json.dumps(found).encode())
    assert [it.path for it in job.unread] == [
        "metadata.annotations[muster.dev/max-run]",
        "pods of main: metadata.labels[muster.dev/pod-sett]",
    ]


def test_of_a_pod_of_a_group_they_are_told() -> None:
    meta = {"name": "a", "namespace": "b", "uid": "u", "labels": {"muster.dev/pod-groupname": "g"}}
    member = member_of(json.dumps({"metadata": meta, "spec": {"containers": []}}).encode())
    assert [it.path for it in member.unread] == ["metadata.labels[muster.dev/pod-groupname]"]


def test_what_a_template_of_a_stateful_set_says_is_read_of_its_pods() -> None:
    """They may be of a group that they name."""
    said = {"labels": {"muster.dev/queue": "q", "muster.dev/pod-group-name": "g"}}
    found: dict[str, Any] = {
        "metadata": {"name": "a", "namespace": "b", "uid": "u", "labels": {"muster.dev/pod-group-name": "g"}},
        "spec": {"template": {"metadata": said, "spec": {"containers": []}}},
    }
    assert not DECODERS["apps", "StatefulSet"](json.dumps(found).encode()).unread


def test_a_job_of_batch_may_say_its_least_parallelism_and_a_job_of_others_not() -> None:
    notes = {"annotations": {"muster.dev/job-min-parallelism": "1"}}
    meta = {"name": "a", "namespace": "b", "uid": "u", **notes}
    job = {"metadata": meta, "spec": {"template": {"spec": {"containers": []}}}}
    assert not DECODERS["batch", "Job"](json.dumps(job).encode()).unread
    (told,) = DECODERS["jobset.x-k8s.io", "JobSet"](json.dumps({"metadata": meta, "spec": {}}).encode()).unread
    assert told.path == "metadata.annotations[muster.dev/job-min-parallelism]"
