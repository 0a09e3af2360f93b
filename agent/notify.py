"""Notifications: what the FleetPolicy's sinks are told, once for each news and not again within five minutes (Flux)."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import structlog

from agent.announce import about_claim, about_gang
from agent.mirror import Mirror
from agent.sync import Sync
from agent.watch import Watcher
from fleet.actions import Action, Announce, SaveClaim, SaveGang
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.kinds.policy import NotificationSink

log = structlog.get_logger(__name__)

QUIET_S = 300.0
"""The same news is not sent again within this time."""
_BAD_OUTCOMES = frozenset({"Invalid", "Refused", "Unsigned", "SourceFailed"})


@dataclass(frozen=True, slots=True)
class News:
    """One thing worth telling."""

    severity: Literal["Info", "Warning"]
    about: str
    reason: str
    message: str
    revision: str

    def body(self, cluster: str, form: str) -> Mapping[str, Any]:
        """The message in a sink's form."""
        if form == "Slack":
            mark = ":warning:" if self.severity == "Warning" else ":information_source:"
            return {"text": f"{mark} *{cluster}* {self.about}: {self.reason}\n{self.message}"}
        return {
            "cluster": cluster,
            "severity": self.severity,
            "about": self.about,
            "reason": self.reason,
            "message": self.message,
            "revision": self.revision,
        }


Post = Callable[[NotificationSink, str, Mapping[str, Any]], None]
"""(sink, address, body): sends in its own time and never raises."""


@dataclass(slots=True)
class Notifier(Watcher):
    """Turns changes of gangs, machines and revisions into news for the sinks that want them."""

    cluster: str
    sync: Sync
    post: Post
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _sinks: tuple[NotificationSink, ...] = ()
    _told: dict[tuple[str, str, str], float] = field(default_factory=dict)
    _outcome: tuple[str, str] = ("", "")

    def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
        """A gang or a machine is about to change."""
        if isinstance(action, SaveGang):
            before = mirror.gangs.current.get(f"{action.gang.namespace}/{action.gang.workload}")
            if before is None or (before.state, before.reason) != (action.gang.state, action.gang.reason):
                self._tell(self._news(about_gang(action.gang)), now_s)
        elif isinstance(action, SaveClaim):
            held = mirror.claims.current.get(action.claim.name)
            if action.claim.disruption and held is not None and held.disruption != action.claim.disruption:
                self._tell(self._news(about_claim(action.claim)), now_s)

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Takes the sinks of the policy in force, and tells what became of a revision."""
        self._sinks = fleet.policy.spec.notifications
        state = self.sync.state
        if (state.attempted, state.outcome) == self._outcome:
            return
        self._outcome = (state.attempted, state.outcome)
        severity: Literal["Info", "Warning"] = "Warning" if state.outcome in _BAD_OUTCOMES else "Info"
        news = News(severity, "fleet repository", state.outcome, state.message, state.attempted)
        self._tell(news, snapshot.now_s)

    def _news(self, announce: Announce) -> News:
        severity: Literal["Info", "Warning"] = "Warning" if announce.type == "Warning" else "Info"
        return News(severity, str(announce.about), announce.reason, announce.message, self.sync.state.applied)

    def _tell(self, news: News, now_s: float) -> None:
        key = (news.about, news.reason, news.message)
        self._told = {told: at for told, at in self._told.items() if now_s - at < QUIET_S}
        if key in self._told:
            return
        self._told[key] = now_s
        for sink in self._sinks:
            if news.severity == "Info" and sink.severity == "Warning":
                continue
            address = self.environment.get(sink.address_env, "")
            if address.startswith(("https://", "http://")):
                self.post(sink, address, news.body(self.cluster, sink.type))
            else:
                log.warning("sink_without_address", sink=sink.name, variable=sink.address_env)


def post_json(sink: NotificationSink, address: str, body: Mapping[str, Any]) -> None:
    """One POST, no redirects, five seconds, no second try; failures are logged without the address."""
    import urllib3

    try:
        answer = urllib3.request("POST", address, json=dict(body), timeout=5.0, retries=False, redirect=False)
    except urllib3.exceptions.HTTPError as error:
        log.warning("notification_failed", sink=sink.name, why=type(error).__name__)
        return
    if answer.status >= 300:
        log.warning("notification_refused", sink=sink.name, status=answer.status)
