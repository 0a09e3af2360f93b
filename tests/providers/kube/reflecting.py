"""A reflector under test: what it handed over, when it paused, without ever waiting for real."""

import queue
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from providers.clock import VirtualClock
from providers.kube.batches import Batch, Undecodable
from providers.kube.config import from_url
from providers.kube.reading import Watched
from providers.kube.reflector import Reflector, Timing
from providers.kube.resources import PODS
from providers.kube.transport import KubeTransport
from tests.support.batches import fold


class ReflectorPodMeta(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    uid: str
    version: str = msgspec.field(name="resourceVersion")


class ReflectorPodSpec(msgspec.Struct, frozen=True):
    node: str = msgspec.field(default="", name="nodeName")


class ReflectorPod(msgspec.Struct, frozen=True):
    metadata: ReflectorPodMeta
    spec: ReflectorPodSpec


def key(pod: ReflectorPod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


@dataclass
class Reflection:
    """One reflector and all it did."""

    url: str
    timing: Timing = field(default_factory=Timing)
    pauses: int = 10_000
    """Stop at this many."""

    def __post_init__(self) -> None:
        self.clock = VirtualClock()
        self.batches: queue.Queue[Batch[ReflectorPod]] = queue.Queue()
        self.objects: dict[str, ReflectorPod] = {}
        self.gaps: list[float] = []
        self.troubles: list[Exception] = []
        self.undecodable: list[Undecodable] = []
        self.on_batch: Callable[[Batch[ReflectorPod]], None] = self.batches.put
        watched = Watched(PODS, msgspec.json.Decoder(ReflectorPod).decode, key, on_undecodable=self.undecodable.append)
        self.reflector = Reflector(
            KubeTransport(from_url(self.url)),
            watched,
            self._take,
            clock=self.clock,
            rng=random.Random(11),
            timing=self.timing,
            on_trouble=lambda error, _: self.troubles.append(error),
            wait=self._pause,
        )

    def _take(self, batch: Batch[ReflectorPod]) -> None:
        self.on_batch(batch)

    def _pause(self, gap_s: float) -> None:
        self.gaps.append(gap_s)
        self.clock.advance(gap_s)
        if len(self.gaps) >= self.pauses:
            self.reflector.stop()

    def next(self) -> Batch[ReflectorPod]:
        batch = self.batches.get(timeout=10)
        fold(self.objects, batch)
        return batch

    def until(self, wanted: Callable[[dict[str, ReflectorPod]], bool]) -> dict[str, ReflectorPod]:
        while not wanted(self.objects):
            self.next()
        return self.objects


@contextmanager
def reflecting(url: str, timing: Timing | None = None) -> Iterator[Reflection]:
    reflection = Reflection(url, timing or Timing())
    reflection.reflector.start()
    try:
        yield reflection
    finally:
        assert reflection.reflector.stop(10)
