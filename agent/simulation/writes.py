"""The log of all writes: what the agent asked of the API server and the cloud, and what changed in the cluster."""

import hashlib
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from providers.clock import Clock
from providers.kube.errors import KubeError
from providers.kube.transport import READ_S, Body, Query
from providers.sim.direct import ApiFaults, DirectTransport
from providers.sim.store import Store, StoreEvent

Moment = Literal["before", "after"]


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
        wrote: Callable[[Moment], None],
        heard: WriteListener,
    ) -> None:
        super().__init__(store, clock, faults=faults, wrote=wrote)
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
        try:
            return super()._call(method, path, query=query, body=body, content_type=content_type, read_s=read_s)
        except KubeError as error:
            refusal = f"{type(error).__name__}: {error}"
            raise
        finally:
            if method != "GET":
                content = body if isinstance(body, bytes) else msgspec.json.encode(body)
                self._heard(AgentWrite(self._clock.now(), self._agent, method, path, content, refusal))


class WriteDigest:
    """The hash of all writes so far, those of the cluster's own controllers among them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hash = hashlib.blake2b(digest_size=16)
        self.count = 0

    def changed(self, event: StoreEvent) -> None:
        """Count a change of the cluster."""
        self._add(event.type, event.resource.key, event.object)

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
