"""Workers report everything that can happen, exactly once, and stay still when another leads."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, cast

import pytest

from agent.inbox import Done, Event, Failed
from agent.workers import Workers
from fleet.actions import Action, LaunchMachines, RemoveNode, TagMachine, TerminateMachines
from fleet.snapshot import CapacityPool, LaunchOutcome, LaunchRequest
from providers.kube.actuator import Actuator, WrittenObject
from providers.kube.errors import Conflict, Forbidden, TooManyRequests, Unreachable
from providers.kube.objects import StaleObject
from providers.ports import Cloud, CloudDenied, CloudRejected, CloudThrottled, CloudUnreachable

REMOVE = RemoveNode("n1")
REQUEST = LaunchRequest("token", 1, CapacityPool("spot", "p5.48xlarge", "us-east-1a"), "h100", {}, (), {})


class Now(Executor):
    """Does at once what it is given."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        fn(*args, **kwargs)
        return Future()


class WorkerWorld:
    """An actuator and a cloud that do as the test says."""

    def __init__(self, act: Callable[[], Any] = tuple, leading: bool = True) -> None:
        self.act = act
        self.heard: list[Event] = []
        self.calls = 0
        self.tag: Callable[[str, dict[str, str]], object] = lambda *_: self.perform(REMOVE)
        actuator, cloud = cast("Actuator", self), cast("Cloud", self)
        self.workers = Workers(actuator, cloud, Now(), self.heard.append, lambda: leading)

    def perform(self, _action: Action) -> Any:
        self.calls += 1
        return self.act()

    launch = terminate = perform


def raising(error: Exception) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


def test_an_action_that_is_through() -> None:
    written = (WrittenObject("n1", "7"),)
    world = WorkerWorld(lambda: written)
    world.workers.submit(REMOVE)
    assert world.heard == [Done(REMOVE, written)]


def test_a_launch_brings_its_outcome() -> None:
    outcome = LaunchOutcome(("i-1",))
    world = WorkerWorld(lambda: outcome)
    action = LaunchMachines(REQUEST, ("c",))
    world.workers.submit(action)
    assert world.heard == [Done(action, outcome=outcome)]


def test_machines_given_back() -> None:
    world = WorkerWorld()
    action = TerminateMachines(("i-1",), "Empty")
    world.workers.submit(action)
    assert world.heard == [Done(action)]


def test_a_machine_is_tagged() -> None:
    told: list[tuple[str, dict[str, str]]] = []
    world = WorkerWorld()
    world.tag = lambda instance_id, tags: told.append((instance_id, tags))
    action = TagMachine("i-1", {"a": "b"})
    world.workers.submit(action)
    assert (told, world.heard) == ([("i-1", {"a": "b"})], [Done(action)])


FAILURES = [
    (CloudThrottled("slow down"), True, "CloudThrottled: slow down"),
    (CloudUnreachable("?"), True, "CloudUnreachable: ?"),
    (CloudDenied("no"), False, "CloudDenied: no"),
    (CloudRejected("wrong"), False, "CloudRejected: wrong"),
    (TooManyRequests("slow down"), True, "TooManyRequests: slow down"),
    (Unreachable("?"), True, "Unreachable: ?"),
    (Conflict("stale"), False, "Conflict: stale"),
    (Forbidden("no"), False, "Forbidden: no"),
    (StaleObject("it has moved on"), True, "it has moved on"),
    (ZeroDivisionError("a defect"), False, "ZeroDivisionError: a defect"),
]


@pytest.mark.parametrize(("error", "transient", "words"), FAILURES, ids=lambda value: type(value).__name__)
def test_what_fails_is_reported_with_whether_it_may_help_to_try_again(
    error: Exception, transient: bool, words: str
) -> None:
    world = WorkerWorld(raising(error))
    world.workers.submit(REMOVE)
    [heard] = world.heard
    assert isinstance(heard, Failed)
    assert heard == Failed(REMOVE, words, transient=transient, refusal=heard.refusal)
    assert (heard.refusal is not None) is isinstance(error, Forbidden), "there is nothing to tell of the others"


@pytest.mark.parametrize(
    "action",
    [REMOVE, LaunchMachines(REQUEST, ("c",)), TagMachine("i-1", {}), TerminateMachines(("i-1",), "x")],
)
def test_who_does_not_lead_does_nothing(action: Action) -> None:
    world = WorkerWorld(leading=False)
    world.workers.submit(action)
    assert world.calls == 0
    assert world.heard == [Failed(action, "another agent leads")]
