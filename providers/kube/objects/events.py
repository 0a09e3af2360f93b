"""`Announce` -> `core/v1` Event. Equal announcements share one object, whose count goes up."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from fleet.actions import Announce
from model.plain_text import plain
from providers.kube.objects.instants import whole_instant
from providers.kube.objects.shapes import JsonObject, set_fields

COMPONENT: Final = "muster"
MESSAGE_MAX: Final = 1024
"""The API's own limit (core/validation/events.go)."""


@dataclass(frozen=True, slots=True)
class EventSeries:
    """Since when (epoch seconds) and how often the same thing has been announced."""

    first_s: float
    count: int = 1


def event_name(announce: Announce) -> str:
    """Returns the name of the Event: equal announcements about one object have the same, and are counted in one."""
    about = announce.about
    key = repr((about.kind, about.uid, announce.type, announce.reason, announce.message))
    return f"{about.name[:200].rstrip('.-')}.{blake2b(key.encode(), digest_size=8).hexdigest()}"


def event_object(announce: Announce, now_s: float, series: EventSeries | None = None, instance: str = "") -> JsonObject:
    """The whole event, for server-side apply under `event_name`; `instance` says which agent speaks.

    An event about a cluster-scoped object lives in `default`, as the API demands.
    """
    about = announce.about
    seen = series or EventSeries(now_s)
    involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name} | set_fields(
        namespace=about.namespace, uid=about.uid
    )
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(announce), "namespace": about.namespace or "default"},
        "involvedObject": involved,
        "type": announce.type,
        "reason": announce.reason,
        "message": _shortened(plain(announce.message)),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance,
        "firstTimestamp": whole_instant(seen.first_s),
        "lastTimestamp": whole_instant(now_s),
        "count": seen.count,
    }


def _shortened(message: str) -> str:
    """At most what the API takes, counted in bytes."""
    data = message.encode()
    return message if len(data) <= MESSAGE_MAX else data[: MESSAGE_MAX - 3].decode(errors="ignore") + "..."
