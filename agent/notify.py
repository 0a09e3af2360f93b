"""Notifications: what the FleetPolicy's sinks are told, once for each news and not again within five minutes (Flux)."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import structlog

from agent.announce import about_claim, about_gang, gang_changes, told_to_go
from agent.announce_sync import MERGED
from agent.failures import Failures
from agent.inbox import Done, Failed
from agent.mirror import Mirror
from agent.news import News
from agent.outbox import Attempt, Delivery, post_json
from agent.sync import Sync
from agent.watch import OnceDone, Watcher
from fleet.actions import Action, Announce, SaveClaim, SaveGang
from fleet.cost.budgets import LEVELS, BudgetNews
from fleet.snapshot import Claim, Gang, Snapshot
from model.fleet import Fleet
from model.kinds.policy import NotificationSink

log = structlog.get_logger(__name__)

QUIET_S = 300.0
"""The same news is not sent again within this time."""
_ALARMS_MOST = 1000
_SYNC = "fleet repository"

Put = Callable[[str, Attempt], object]
"""(sink, attempt): sends in its own time and never raises."""


@dataclass(slots=True)
class Notifier(Watcher):
    """Turns changes of gangs, machines and revisions into news for the sinks that want them."""

    cluster: str
    sync: Sync
    put: Put
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    address_folder: Path | None = None
    """Holds a file for each `addressEnv` and `secretEnv`, read anew for every attempt; None: they are variables."""
    commit_link: str = ""
    """Address of a commit's page, with `{commit}` where its id stands; empty: news has no link."""
    troubles: Callable[[], Mapping[str, str]] = dict
    """Returns sink -> why nothing reaches it."""
    failures: Failures = field(default_factory=Failures)
    """Is told of the sinks in force that nothing reaches."""
    _fleet: Fleet = field(default_factory=Fleet)
    _told: dict[tuple[str, str, str, str], float] = field(default_factory=dict)
    _alarmed: dict[tuple[str, str], None] = field(default_factory=dict)
    """Sink and subject of incidents that are open, oldest first."""
    _now_s: float = 0.0
    _once_done: OnceDone = field(default_factory=OnceDone)

    def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
        """A gang or a machine is about to change."""
        if isinstance(action, SaveGang) and gang_changes(action.gang, mirror):
            news = self._about_gang(action.gang, mirror)
        elif isinstance(action, SaveClaim) and told_to_go(action.claim, mirror):
            news = self._about_claim(action.claim, mirror)
        else:
            return
        self._once_done.keep(action, lambda: self._tell(news, now_s))

    def ended(self, event: Done | Failed, now_s: float) -> None:
        """Tells what has changed."""
        self._once_done.ended(event)

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Takes the sinks of the policy in force."""
        self._fleet, self._now_s = fleet, snapshot.now_s
        declared, troubles = {it.name for it in fleet.policy.spec.notifications}, self.troubles()
        self.failures.notifications = "; ".join(
            f"sink {name}: {why}" for name, why in sorted(troubles.items()) if name in declared
        )

    def hear(self, announce: Announce) -> None:
        """Tells of a change of the FleetSync what is announced of it."""
        state = self.sync.state
        plan = state.plan
        costs = plan is not None and announce.reason == state.outcome and plan.now is not None and plan.then is not None
        news = News(
            _severity(announce),
            f"request {state.hands.request}" if announce.reason == MERGED else _SYNC,  # which ends no alarm
            announce.reason,
            announce.message,
            state.attempted,
            state.author,
            self._link(state.attempted),
            usd_h=plan.then.usd_h - plan.now.usd_h if costs and plan and plan.then and plan.now else None,
        )
        self._tell(news, self._now_s)

    def hear_budget(self, news: BudgetNews) -> None:
        """Tells how much of a budget is spent; PagerDuty hears of it from its second level on."""
        severity: Literal["Info", "Warning"] = "Warning" if news.level > LEVELS[0] else "Info"
        told = News(severity, f"team {news.team}", news.reason, news.message, "", teams=(news.team,))
        self._tell(told, self._now_s)

    def _about_gang(self, gang: Gang, mirror: Mirror) -> News:
        held = {pin.claim for pin in gang.pins if pin.claim} & mirror.claims.current.keys()
        usd_h = sum(mirror.claims.current[name].charged_usd_h for name in held) if held else None
        return self._news(about_gang(gang), self._teams((gang,)), usd_h)

    def _about_claim(self, claim: Claim, mirror: Mirror) -> News:
        on_it = (it for it in mirror.gangs.current.values() if it.uid in claim.gangs or _stands_on(it, claim))
        return self._news(about_claim(claim), self._teams(tuple(on_it)), claim.charged_usd_h)

    def _teams(self, gangs: tuple[Gang, ...]) -> tuple[str, ...]:
        queues = self._fleet.queues
        return tuple(sorted({queues[it.queue].spec.team for it in gangs if it.queue in queues}))

    def _news(self, announce: Announce, teams: tuple[str, ...], usd_h: float | None) -> News:
        state = self.sync.state
        revision, told = state.applied, (announce.reason, announce.message)
        author = state.author if state.attempted == revision else ""  # of an earlier one it is not known any more
        about, link = str(announce.about), self._link(revision)
        return News(_severity(announce), about, *told, revision, author, link, teams, usd_h)

    def _link(self, revision: str) -> str:
        commit = revision.rpartition(":")[2]
        return self.commit_link.replace("{commit}", commit) if commit.isalnum() else ""

    def _tell(self, news: News, now_s: float) -> None:
        key = (news.about, news.reason, news.message, news.revision)
        self._told = {told: at for told, at in self._told.items() if now_s - at < QUIET_S}
        repeated, news = key in self._told, replace(news, at_s=now_s)
        self._told.setdefault(key, now_s)
        for sink in self._fleet.policy.spec.notifications:
            if (not repeated or self._turns_incident(sink, news)) and self._wants(sink, news):
                self.put(sink.name, partial(self._attempt, sink, news))

    def _turns_incident(self, sink: NotificationSink, news: News) -> bool:
        """Whether news opens an incident that is closed, or closes one that is open, though it is not new."""
        is_open = (sink.name, news.about) in self._alarmed
        return sink.type == "PagerDuty" and is_open is (news.severity == "Info")

    def _wants(self, sink: NotificationSink, news: News) -> bool:
        if sink.teams and not set(sink.teams) & set(news.teams):
            return False
        alarm = (sink.name, news.about)
        if sink.type == "PagerDuty" and news.severity == "Warning":
            self._alarmed[alarm] = None
            while len(self._alarmed) > _ALARMS_MOST:
                del self._alarmed[next(iter(self._alarmed))]
        elif sink.type == "PagerDuty":
            return self._alarmed.pop(alarm, 0) is None
        return news.severity == "Warning" or sink.severity == "Info"

    def _attempt(self, sink: NotificationSink, news: News) -> Delivery:
        """One try to send; on the outbox's thread, so it reads nothing that changes but secrets."""
        address, secret = self._held_for(sink)
        if why := _lacking(sink, address, secret):
            lacks = ("sink_without_secret", sink.secret_env) if address else ("sink_without_address", sink.address_env)
            log.warning(lacks[0], sink=sink.name, variable=lacks[1])
            return Delivery(sent=False, why=why, still=partial(self._lacks, sink.name))
        inside = secret if sink.type == "PagerDuty" else ""
        came = post_json(sink.name, address, news.body(self.cluster, sink.type, inside), "" if inside else secret)
        return came._replace(still=partial(self._lacks, sink.name, address, came.why)) if came.unusable else came

    def _lacks(self, name: str, unusable: str = "", why: str = "") -> str:
        """Returns why nothing can be sent to a sink now; empty where something may be, or it is declared no more.

        `unusable` is an address that is none, and `why`. On the outbox's thread, as `_attempt`: a fleet is a value.
        """
        sink = next((it for it in self._fleet.policy.spec.notifications if it.name == name), None)
        if sink is None:
            return ""
        address, secret = self._held_for(sink)
        return why if address and address == unusable else _lacking(sink, address, secret)

    def _held_for(self, sink: NotificationSink) -> tuple[str, str]:
        """Returns address and secret of a sink as they are now; empty where there is none."""
        return self._address(sink), self._secret(sink.secret_env) if sink.secret_env else ""

    def _secret(self, name: str) -> str:
        """Returns what a variable or a file of the folder holds; empty where there is none."""
        if self.address_folder is None:
            return self.environment.get(name, "")
        try:
            return (self.address_folder / name).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def _address(self, sink: NotificationSink) -> str:
        """Returns the sink's address; empty where there is none, or one that is not of the web."""
        address = self._secret(sink.address_env)
        return address if address.startswith(("https://", "http://")) and address.isprintable() else ""


def _lacking(sink: NotificationSink, address: str, secret: str) -> str:
    """Returns what of a sink nobody has given us; empty where all of it is there."""
    if not address:
        return f"{sink.address_env} holds no address that begins with https:// or http://"
    return f"{sink.secret_env} holds no secret" if sink.secret_env and not secret else ""


def _severity(announce: Announce) -> Literal["Info", "Warning"]:
    return "Warning" if announce.type == "Warning" else "Info"


def _stands_on(gang: Gang, claim: Claim) -> bool:
    return any(pin.claim == claim.name or (pin.node and pin.node == claim.node) for pin in gang.pins)
