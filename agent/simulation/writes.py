"""The log of all writes: what the agent asked of the API server and the cloud, and what changed in the cluster."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from fleet.snapshot import LaunchOutcome, LaunchRequest
from providers.clock import Clock
from providers.kube.errors import KubeError
from providers.kube.transport import READ_S, Body, Query
from providers.ports import Cloud
from providers.sim.apiserver.faults import FaultRules
from providers.sim.direct import ApiFaults, DirectTransport
from providers.sim.store import Store, StoreEvent

Moment = Literal["before", "after"]
_REPORTS = ("fleetsyncs", "configmaps", "queues", "nodepools", "events", "leases")


class AgentWrite(NamedTuple):
    """One call by which an agent changes something, with its answer."""

    at_s: float
    agent: str
    verb: str
    """A method of the API, or `launch`, `terminate`, `tag`."""
    subject: str
    """A path of the API, or the ids of machines."""
    content: bytes
    refusal: str = ""
    """The error it met; empty = it was done."""

    @property
    def reports(self) -> bool:
        """Whether it only tells of something, and moves nothing."""
        return any(f"/{kind}/" in self.subject for kind in _REPORTS)

    def words(self) -> str:
        """The call in one line."""
        path = self.subject.removeprefix("/apis/").removeprefix("/api/")
        refused = f" REFUSED {self.refusal[:120]}" if self.refusal else ""
        return f"{self.agent}: {self.verb} {path} {self._gist()}{refused}"

    def _gist(self) -> str:
        """What a status says, or what was bought."""
        try:
            said = msgspec.json.decode(self.content)
        except msgspec.DecodeError:
            return ""
        if not isinstance(said, dict):
            return str(said)[:160] if said else ""
        if "status" not in said:
            return str(said.get("spec") or said.get("message") or "")[:160]
        status = said["status"] or {}
        shown = {key: status[key] for key in ("state", "reason", "message", "disruption", "eviction") if key in status}
        return str(shown)[:240]


WriteListener = Callable[[AgentWrite], None]


class RecordedTransport(DirectTransport):
    """The transport of one agent, which tells of every write after its answer."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        agent: str,
        faults: ApiFaults,
        rules: FaultRules,
        wrote: Callable[[Moment], None],
        heard: WriteListener,
    ) -> None:
        super().__init__(store, clock, faults=faults, rules=rules, wrote=wrote)
        self._agent = agent
        self._heard = heard

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Body | None = None,
        content_type: str = "application/json",
        read_s: float = READ_S,
    ) -> bytes:
        refusal = ""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        sent = None if body is None else content
        try:
            return super()._call(method, path, query=query, body=sent, content_type=content_type, read_s=read_s)
        except KubeError as error:
            refusal = f"{type(error).__name__}: {error}"
            raise
        finally:
            if method != "GET":
                self._heard(AgentWrite(self._clock.now(), self._agent, method, path, content, refusal))


class RecordedCloud:
    """The port `Cloud` with a bell around each call that spends or returns money, or takes a machine over."""

    def __init__(
        self, cloud: Cloud, clock: Clock, agent: str, wrote: Callable[[Moment], None], heard: WriteListener
    ) -> None:
        self._cloud = cloud
        self._clock = clock
        self._agent = agent
        self._wrote = wrote
        self._heard = heard
        self.catalog, self.refresh, self.spot_history = cloud.catalog, cloud.refresh, cloud.spot_history
        self.instances, self.reservations, self.resolve = cloud.instances, cloud.reservations, cloud.resolve

    def launch(self, request: LaunchRequest) -> LaunchOutcome:
        """Buy machines."""
        self._wrote("before")
        outcome = self._cloud.launch(request)
        refusal = "" if outcome.instances else ", ".join(str(it.code) for it in outcome.failures)
        self._tell("launch", request.token, [str(request.pool), request.count, outcome], refusal)
        self._wrote("after")
        return outcome

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Give machines back."""
        self._wrote("before")
        self._cloud.terminate(instance_ids)
        self._tell("terminate", ",".join(instance_ids), None)
        self._wrote("after")

    def tag(self, instance_id: str, tags: dict[str, str]) -> None:
        """Write tags on a machine."""
        self._wrote("before")
        self._cloud.tag(instance_id, tags)
        self._tell("tag", instance_id, tags)
        self._wrote("after")

    def _tell(self, verb: str, subject: str, content: object, refusal: str = "") -> None:
        self._heard(AgentWrite(self._clock.now(), self._agent, verb, subject, msgspec.json.encode(content), refusal))


class WriteDigest:
    """The hash of all writes so far, those of the cluster's own controllers among them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hash = hashlib.blake2b(digest_size=16)
        self.count = 0

    def changed(self, event: StoreEvent) -> None:
        """Count a change of the cluster."""
        self._add(event.type, event.resource.key, msgspec.Raw(event.revision.json))

    def acted(self, write: AgentWrite) -> None:
        """Count what an agent did."""
        self._add(write.verb, write.subject, [write.agent, write.content.decode(errors="replace"), write.refusal])

    def _add(self, verb: str, subject: str, content: Any) -> None:
        self.count += 1
        self._hash.update(msgspec.json.encode([self._clock.now(), verb, subject, content]))

    @property
    def value(self) -> str:
        """The hash as hexadecimal digits."""
        return self._hash.hexdigest()
