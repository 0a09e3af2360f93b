"""Notifications: what the FleetPolicy's sinks are told, once for each news and not again within five minutes (Flux)."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import structlog

from agent.announce import BAD_OUTCOMES, about_claim, about_gang, gang_changes, told_to_go
from agent.inbox import Done, Failed
from agent.mirror import Mirror
from agent.sync import Sync
from agent.watch import OnceDone, Watcher
from fleet.actions import Action, Announce, SaveClaim, SaveGang
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.kinds.policy import NotificationSink
from model.plain_text import plain, slack

log = structlog.get_logger(__name__)

QUIET_S = 300.0
"""The same news is not sent again within this time."""
_SEND_S = 5.0
_SLACK_MOST = 4000
"""Slack cuts longer texts (https://docs.slack.dev/changelog/2018-truncating-really-long-messages)."""


@dataclass(frozen=True, slots=True)
class News:
    """One thing worth telling."""

    severity: Literal["Info", "Warning"]
    about: str
    reason: str
    message: str
    revision: str

    def body(self, cluster: str, form: str) -> Mapping[str, Any]:
        """The message in a sink's form. Names and messages come from jobs and the repository: they mark nothing up."""
        if form == "Slack":
            mark = ":warning:" if self.severity == "Warning" else ":information_source:"
            about, message = slack(f"{self.about}: {self.reason}"), slack(self.message)
            return {"text": f"{mark} *{slack(cluster)}* {about}\n{message}"[:_SLACK_MOST], "unfurl_links": False}
        return {
            "cluster": cluster,
            "severity": self.severity,
            "about": plain(self.about),
            "reason": plain(self.reason),
            "message": plain(self.message),
            "revision": plain(self.revision),
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
    address_folder: Path | None = None
    """Holds a file for each `addressEnv`, read anew for every message; None: addresses come from the environment."""
    _sinks: tuple[NotificationSink, ...] = ()
    _told: dict[tuple[str, str, str], float] = field(default_factory=dict)
    _outcome: tuple[str, str] = ("", "")
    _once_done: OnceDone = field(default_factory=OnceDone)

    def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
        """A gang or a machine is about to change."""
        if isinstance(action, SaveGang) and gang_changes(action.gang, mirror):
            news = self._news(about_gang(action.gang))
        elif isinstance(action, SaveClaim) and told_to_go(action.claim, mirror):
            news = self._news(about_claim(action.claim))
        else:
            return
        self._once_done.keep(action, lambda: self._tell(news, now_s))

    def ended(self, event: Done | Failed, now_s: float) -> None:
        """Tells what has changed."""
        self._once_done.ended(event)

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Takes the sinks of the policy in force, and tells what became of a revision."""
        self._sinks = fleet.policy.spec.notifications
        state = self.sync.state
        reason, message = state.standing
        if (state.attempted, reason) == self._outcome or (state.trouble is not None and state.trouble.transient):
            return
        self._outcome = (state.attempted, reason)
        severity: Literal["Info", "Warning"] = "Warning" if reason in BAD_OUTCOMES else "Info"
        self._tell(News(severity, "fleet repository", reason, message, state.attempted), snapshot.now_s)

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
            if address := self._address(sink):
                self.post(sink, address, news.body(self.cluster, sink.type))
            else:
                log.warning("sink_without_address", sink=sink.name, variable=sink.address_env)

    def _address(self, sink: NotificationSink) -> str:
        """Returns the sink's address; empty where there is none, or one that is not of the web."""
        address = self.environment.get(sink.address_env, "")
        if self.address_folder is not None:
            try:
                address = (self.address_folder / sink.address_env).read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError):
                return ""
        return address if address.startswith(("https://", "http://")) and address.isprintable() else ""


def post_json(sink: NotificationSink, address: str, body: Mapping[str, Any]) -> None:
    """One POST, no redirects, five seconds, no second try; failures are logged without the address.

    The body of the answer is not read, so that a server cannot make the agent hold or wait for one without an end.
    Addresses are the operator's own, so private ones are allowed: receivers often stand in the same cluster.
    """
    import urllib3

    limits = urllib3.Timeout(total=_SEND_S)
    with urllib3.PoolManager(num_pools=1) as pool:
        try:
            answer = pool.request(
                "POST", address, json=dict(body), timeout=limits, retries=False, redirect=False, preload_content=False
            )
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            log.warning("notification_failed", sink=sink.name, why=type(error).__name__)
            return
        answer.close()
    if answer.status >= 300:
        log.warning("notification_refused", sink=sink.name, status=answer.status)
