"""The ConfigMap that mig-manager reads, through the API: what nodes still carry stays in it."""

import random
import threading

import pytest
import yaml

from fleet.actions import PublishLayouts
from providers.clock import VirtualClock
from providers.kube.actuator import Actuator
from providers.kube.retry import Retrier
from providers.sim.direct import DirectTransport
from providers.sim.store import Store

NAME, NAMESPACE = "muster-mig-config", "gpu-operator"
ENTRY = [{"devices": "all", "mig-enabled": False}]


def text(*names: str) -> str:
    return yaml.safe_dump({"version": "v1", "mig-configs": dict.fromkeys(names, ENTRY)})


class Published:
    def __init__(self) -> None:
        clock = VirtualClock()
        self.store = Store(clock)
        self.store.create(self.store.resource("Namespace"), {"metadata": {"name": NAMESPACE}})
        self.hands = Actuator(
            DirectTransport(self.store, clock), Retrier(stop=threading.Event(), rng=random.Random(0)), clock
        )

    def write(self, *names: str, carried: tuple[str, ...] = ()) -> list[str]:
        assert self.hands.perform(PublishLayouts(text(*names), frozenset(carried))) == ()
        (held,) = self.store.list(self.store.resource("ConfigMap"), NAMESPACE)
        return sorted(yaml.safe_load(held["data"]["config.yaml"])["mig-configs"])

    def scribble(self, config: str) -> None:
        body = {"metadata": {"name": NAME}, "data": {"config.yaml": config}}
        self.store.create(self.store.resource("ConfigMap"), body, namespace=NAMESPACE)


def test_what_a_node_carries_stays_until_it_carries_it_no_more() -> None:
    published = Published()
    assert published.write("a", "b") == ["a", "b"]
    assert published.write("c", carried=("b", "never-there")) == ["b", "c"]
    assert published.write("c", carried=("b",)) == ["b", "c"]
    assert published.write("c") == ["c"]


@pytest.mark.parametrize("config", ["", "[", "scribbled", "mig-configs: {b: 1}"])
def test_a_file_that_cannot_be_read_is_written_anew(config: str) -> None:
    published = Published()
    published.scribble(config)
    assert published.write("a", carried=("b",)) == ["a"]


def test_there_is_none_yet() -> None:
    assert Published().write("a", carried=("b",)) == ["a"]


def test_configurations_of_the_device_plugin_stand_in_a_map_of_their_own() -> None:
    published = Published()
    maps = published.store.resource("ConfigMap")

    def write(sharing: dict[str, str], carried: tuple[str, ...] = ()) -> dict[str, str]:
        published.hands.perform(PublishLayouts("", frozenset(carried), sharing))
        [held] = published.store.list(maps, NAMESPACE)
        assert held["metadata"]["name"] == "muster-device-plugin-config"
        data: dict[str, str] = held["data"]
        return data

    assert write({"mps-2": "a"}) == {"mps-2": "a"}
    assert write({"mps-4": "b"}, ("mps-2", "never-there")) == {"mps-2": "a", "mps-4": "b"}
    assert write({"mps-4": "b"}) == {"mps-4": "b"}
