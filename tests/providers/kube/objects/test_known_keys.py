"""Labels and annotations with our prefix: those that nothing reads are told, and none that is read is missing."""

import json
from itertools import chain
from typing import Any

import pytest

from model import labels
from providers.kube.objects import names, topology
from providers.kube.objects.jobs.registry import DECODERS
from providers.kube.objects.known_keys import OF_OTHERS, OF_USERS, unknown_keys
from providers.kube.objects.pod_groups import member_of

NOT_OF_WORK = {names.API_VERSION}


def constants(module: Any) -> set[str]:
    """The names with our prefix among the constants of a module."""
    values = (it for name, it in vars(module).items() if name.isupper())
    texts = chain.from_iterable((it,) if isinstance(it, str) else it for it in values if isinstance(it, str | tuple))
    return {it for it in texts if isinstance(it, str) and it.startswith("muster.dev/")}


def test_every_name_that_is_read_or_written_is_in_the_table() -> None:
    assert not OF_USERS & OF_OTHERS
    found = set().union(*map(constants, (labels, names, topology)))
    assert len(found) > 30
    assert found - NOT_OF_WORK == OF_USERS | OF_OTHERS


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
    (told,) = unknown_keys({}, {key: "1"})
    assert told.path == f"metadata.annotations[{key}]"
    assert told.words.startswith(words)


@pytest.mark.parametrize(
    "key",
    sorted(OF_USERS | OF_OTHERS | {"muster.dev", "example.com/x", "sim.muster.dev/run-seconds", "kueue.x-k8s.io/y"}),
)
def test_known_names_and_those_of_others_are_not_told(key: str) -> None:
    assert not list(unknown_keys({key: "1"}, {key: "1"}))


def test_no_more_than_some_are_told() -> None:
    assert 1 < len(list(unknown_keys({f"muster.dev/x{number}": "" for number in range(1000)}, None))) < 10


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
