"""Events about the objects that the agent writes and nobody watches: `kubectl describe` looks for them by uid."""

import random
import threading

import pytest

from fleet.actions import Announce
from fleet.snapshot import JobRef
from providers.clock import VirtualClock
from providers.kube.actuator import Actuator
from providers.kube.objects.crds import definitions
from providers.kube.retry import Retrier
from providers.sim.apiserver.faults import FaultRule, FaultRules, WebhookDenies
from providers.sim.direct import DirectTransport
from providers.sim.store import Store

QUEUE = JobRef("muster.dev/v1alpha1", "Queue", "", "research", "")


@pytest.mark.parametrize(
    ("there", "may_read", "known"),
    [
        pytest.param(True, True, True, id="it is there"),
        pytest.param(False, True, False, id="it is not there yet"),
        pytest.param(True, False, False, id="under a role that may not read it"),
    ],
)
def test_an_event_is_told_with_the_uid_where_it_can_be_had(there: bool, may_read: bool, known: bool) -> None:
    clock, rules = VirtualClock(), FaultRules()
    store, uid = Store(clock), ""
    for definition in definitions():
        store.create(store.resource("CustomResourceDefinition"), definition)
    if there:
        body = {"metadata": {"name": "research"}, "spec": {}}
        uid = store.create(store.resource("Queue", "muster.dev"), body)["metadata"]["uid"]
    if not may_read:
        rules.add(
            FaultRule(WebhookDenies("rbac"), verbs=frozenset({"get"}), resources=frozenset({"queues.muster.dev"}))
        )
    hands = Actuator(
        DirectTransport(store, clock, rules=rules), Retrier(stop=threading.Event(), rng=random.Random(0)), clock
    )
    hands.perform(Announce(QUEUE, "BudgetNearlySpent", "half of it", "Normal"))
    (told,) = store.list(store.resource("Event"), "default")
    assert (told["involvedObject"]["name"], told["involvedObject"].get("uid", "")) == ("research", uid if known else "")
