"""What listens while the process leads: polls of git, forge and cloud, watches of the cluster, and the clock."""

import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from agent.config import Settings
from agent.gpu_readings import readings_listener
from agent.inbox import Tick
from agent.metrics import Metrics
from agent.reconcile_requests import OpenRequests, RequestListener, request_reflector
from agent.resolutions import RESOLVE_EVERY_S, resolutions_listener
from agent.sources import (
    RESERVATIONS_EVERY_S,
    Enqueue,
    SourceThread,
    catalog_listener,
    git_listener,
    health_listener,
    instances_listener,
    notices_listener,
    reflectors,
    reservations_listener,
)
from agent.timetable import Alarm, Timetable
from fleet.snapshot import LaunchConfiguration
from providers.clock import Clock
from providers.git.source import GitSource
from providers.kube.transport import KubeTransport
from providers.ports import Cloud, Health, Notices


class ListenedTo(NamedTuple):
    """Whom the agent hears of the world from; the last two may be missing."""

    source: GitSource
    transport: KubeTransport
    cloud: Cloud
    notices: Notices | None
    health: Health | None
    clock: Clock


class TermListeners:
    """The threads, watches and timers of one term; all that they hear goes into the inbox by `put`."""

    def __init__(
        self,
        settings: Settings,
        world: ListenedTo,
        put: Enqueue,
        metrics: Metrics,
        stopping: threading.Event,
        look_again: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._world = world
        self._put = put
        self._metrics = metrics
        self._stopping = stopping
        self._look_again = look_again
        """Has repository and forge looked at now."""
        self._timetable = Timetable()
        self.alarm = Alarm(self._timetable, world.clock, partial(put, Tick()))
        self._sources: list[SourceThread] = []
        self._watching: list[Any] = []

    def listen(
        self,
        in_force: str,
        asked: Callable[[], tuple[LaunchConfiguration, ...]],
        handled: str,
        review: Callable[[], float] | None,
        rng: random.Random,
    ) -> tuple[SourceThread, ...]:
        """Sets everything up; returns those that look again when somebody has pushed.

        `in_force` is the revision to go on from, `asked` what the cloud is asked of names, `handled` the last request
        that was answered, `review` one look at the pull requests.
        """
        source, transport, cloud, notices, health, clock = self._world
        put, of_cloud = self._put, self._settings.of_cloud
        requests = OpenRequests(put)
        on_push = [self._thread("git", requests.answering(git_listener(source, put, in_force)))]
        on_push += [self._thread("review", review)] if review is not None else []
        self._sources = [
            *on_push,
            self._thread("instances", instances_listener(cloud, put, clock, of_cloud.poll_interval_s)),
            self._thread("reservations", reservations_listener(cloud, put, clock, RESERVATIONS_EVERY_S)),
            self._thread("resolutions", resolutions_listener(cloud, put, clock, RESOLVE_EVERY_S, asked)),
            self._thread("catalog", catalog_listener(cloud, put, of_cloud.refresh_interval_s)),
        ]
        if (dcgm := self._settings.dcgm) is not None:
            self._sources.append(self._thread("dcgm", readings_listener(dcgm, transport, put, clock, self._count)))
        if notices is not None:
            self._sources.append(self._thread("notices", notices_listener(notices, put)))
        if health is not None and of_cloud.instance_health != "Off":
            self._sources.append(self._thread("health", self._of_health(health)))

        def requested(value: str) -> None:
            requests.ask(value)
            self._look_again()

        answering = RequestListener(requested, put, handled)
        cluster, drawn = self._settings.cluster, random.Random(rng.random())
        self._watching = [
            *reflectors(transport, put, clock, rng, self._count),
            request_reflector(transport, cluster, answering, clock, drawn),
        ]
        return tuple(on_push)

    def start(self) -> None:
        """Begin to listen."""
        for listener in (*self._sources, *self._watching):
            listener.start()
        self.alarm.rest(0.0, ticked=True)
        self._timetable.start()

    def stop(self) -> None:
        """Hear nothing more; whoever waits is woken."""
        self._timetable.stop()
        for reflector in self._watching:
            reflector.stop(1.0)
        for thread in self._sources:
            thread.poke()

    def _thread(self, name: str, listen: Callable[[], float]) -> SourceThread:
        return SourceThread(name, listen, stop=self._stopping, count=self._count, timetable=self._timetable)

    def _of_health(self, health: Health) -> Callable[[], float]:
        def count(kind: str) -> None:
            self._metrics.unhealthy.labels(kind).inc()

        return health_listener(health, self._put, count, act=self._settings.of_cloud.instance_health == "Act")

    def _count(self, source: str, kind: str) -> None:
        self._metrics.source_failures.labels(source, kind).inc()
