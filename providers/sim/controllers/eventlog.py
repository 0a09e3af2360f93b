"""Events as controllers record them: one object for all that are alike, counted (client-go `tools/record`)."""

from dataclasses import dataclass

from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import Obj, stamp
from providers.sim.store import ApiError

_BURST = 25
_REFILL_S = 300.0
_QUIET_S = 60.0
"""So long an event that comes again is only counted: nobody reads it every second."""


@dataclass(slots=True)
class _Series:
    """An event that was written, and how often it came since."""

    namespace: str
    name: str
    first_s: float
    written_s: float
    count: int = 1


@dataclass(slots=True)
class _EventAllowance:
    """How many more events one object may cause (`EventSourceObjectSpamFilter`)."""

    left: float
    at_s: float

    def takes(self, now: float, burst: int, refill_s: float) -> bool:
        """Whether one more is allowed at `now`; it is taken then."""
        self.left = min(burst, self.left + (now - self.at_s) / refill_s)
        self.at_s = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class EventLog:
    """Writes the events of one component. What cannot be written is lost, as upstream: events are best effort.

    An object may cause `burst` different ones at once, and another every `refill_s` seconds.
    """

    def __init__(
        self, cluster: MirroredCluster, component: str, *, burst: int = _BURST, refill_s: float = _REFILL_S
    ) -> None:
        self._burst, self._refill_s = burst, refill_s
        self._store = cluster.store
        self._resource = cluster.store.resource("events", "")
        self._component = component
        self._series: dict[str, dict[tuple[str, str], _Series]] = {}
        self._allowances: dict[str, _EventAllowance] = {}
        self._written = 0

    def normal(self, about: Obj, reason: str, message: str, now: float) -> None:
        """Something went as it should."""
        self._record(about, "Normal", reason, message, now)

    def warning(self, about: Obj, reason: str, message: str, now: float) -> None:
        """Something did not."""
        self._record(about, "Warning", reason, message, now)

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._series.pop(uid, None)
        self._allowances.pop(uid, None)

    def _record(self, about: Obj, kind: str, reason: str, message: str, now: float) -> None:
        uid = about["metadata"]["uid"]
        known = self._series.setdefault(uid, {}).get((reason, message))
        if known is not None:
            known.count += 1
            if now - known.written_s < _QUIET_S:
                return
        allowance = self._allowances.setdefault(uid, _EventAllowance(self._burst, now))
        if not allowance.takes(now, self._burst, self._refill_s):
            return
        try:
            if known is None:
                self._series[uid][reason, message] = self._begin(about, kind, reason, message, now)
            else:
                self._repeat(known, now)
        except ApiError:  # its namespace goes, or somebody deleted it: the next one begins anew
            self._series[uid].pop((reason, message), None)

    def _begin(self, about: Obj, kind: str, reason: str, message: str, now: float) -> _Series:
        meta = about["metadata"]
        self._written += 1
        namespace, name = meta.get("namespace") or "default", f"{meta['name']}.{int(now * 1e6) + self._written:016x}"
        reference = {"apiVersion": about["apiVersion"], "kind": about["kind"], "name": meta["name"], "uid": meta["uid"]}
        event = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                **reference,
                "resourceVersion": meta["resourceVersion"],
                **({"namespace": namespace} if meta.get("namespace") else {}),
            },
            "type": kind,
            "reason": reason,
            "message": message[:1024],
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": stamp(now),
            "lastTimestamp": stamp(now),
            "count": 1,
        }
        self._store.create(self._resource, event, namespace=namespace)
        return _Series(namespace, name, now, now)

    def _repeat(self, known: _Series, now: float) -> None:
        held = self._store.get(self._resource, known.name, known.namespace)
        fresh = {"count": known.count, "lastTimestamp": stamp(now)}
        self._store.update(self._resource, {**held, **fresh}, namespace=known.namespace)
        known.written_s = now
