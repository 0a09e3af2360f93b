"""One thing worth telling, in the form that each kind of receiver takes.

Names, authors and messages come from jobs and the repository: in no form do they mark anything up.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from model.plain_text import instant, plain, slack

_SLACK_MOST = 4000
"""Slack cuts longer texts (https://docs.slack.dev/changelog/2018-truncating-really-long-messages)."""
_TEAMS_MOST = 16_000
"""Signs of a message; Teams refuses cards above 28 KB."""
_SUMMARY_MOST = 1024
_DEDUP_MOST = 255
"""Bounds of PagerDuty's Events API v2 on `summary` and `dedup_key`."""


@dataclass(frozen=True, slots=True)
class News:
    """One thing worth telling."""

    severity: Literal["Info", "Warning"]
    about: str
    reason: str
    message: str
    revision: str
    author: str = ""
    """Of the commit that it comes from, as that says itself."""
    link: str = ""
    """To the commit."""
    teams: tuple[str, ...] = ()
    """Whose work it concerns; none: the whole fleet's."""
    usd_h: float | None = None
    """USD an hour of the machines it is about; of a revision, what it adds."""
    at_s: float = 0.0
    """When it was told first (epoch seconds); an attempt that is made again tells the same."""

    def body(self, cluster: str, form: str, secret: str = "") -> Mapping[str, Any]:
        """The message in a sink's form; `secret` is what the form carries inside, a routing key."""
        return _FORMS[form](self, cluster, secret)

    @property
    def id(self) -> str:
        """Returns what tells it from other news, and is the same in each attempt: receivers drop what they know."""
        told = (f"{self.at_s:.3f}", self.about, self.reason, self.message, self.revision)
        return hashlib.sha256("\0".join(told).encode(errors="surrogatepass")).hexdigest()[:32]

    @property
    def facts(self) -> Mapping[str, str]:
        """Returns what is known beside the message, by name, in plain text."""
        found = {
            "revision": plain(self.revision),
            "author": plain(self.author),
            "teams": ", ".join(map(plain, self.teams)),
            "USD/h": "" if self.usd_h is None else f"{self.usd_h:+.2f}",
        }
        return {name: value for name, value in found.items() if value}


def _webhook(news: News, cluster: str, _secret: str) -> Mapping[str, Any]:
    return {
        "id": news.id,
        "time": instant(news.at_s),
        "cluster": cluster,
        "severity": news.severity,
        "about": plain(news.about),
        "reason": plain(news.reason),
        "message": plain(news.message),
        "revision": plain(news.revision),
        "author": plain(news.author),
        "link": news.link,
        "teams": list(map(plain, news.teams)),
        "usdPerHour": news.usd_h,
    }


def _slack(news: News, cluster: str, _secret: str) -> Mapping[str, Any]:
    mark = ":warning:" if news.severity == "Warning" else ":information_source:"
    about, message = slack(f"{news.about}: {news.reason}"), slack(news.message)
    facts = slack("; ".join(f"{name} {value}" for name, value in news.facts.items()))
    lines = [f"{mark} *{slack(cluster)}* {about}", message, facts, news.link]
    return {"text": "\n".join(filter(None, lines))[:_SLACK_MOST], "unfurl_links": False}


def _teams(news: News, cluster: str, _secret: str) -> Mapping[str, Any]:
    """Returns an Adaptive Card, as Teams' workflows take it; text runs are the element in which nothing is Markdown."""
    title = f"{cluster} {news.about}: {news.reason}"
    texts = [(title, True), (news.message, False), *((f"{name} {value}", False) for name, value in news.facts.items())]
    colour = "attention" if news.severity == "Warning" else "default"
    blocks = [
        {
            "type": "RichTextBlock",
            "inlines": [
                {"type": "TextRun", "text": plain(text)[:_TEAMS_MOST]}
                | ({"weight": "bolder", "color": colour} if bold else {})
            ],
        }
        for text, bold in texts
    ]
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
    }
    if news.link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open the commit", "url": news.link}]
    attached = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attached]}


def _pager_duty(news: News, cluster: str, secret: str) -> Mapping[str, Any]:
    """Returns an event of the Events API v2: a warning opens an incident about its subject, other news closes it."""
    event = {"routing_key": secret, "dedup_key": f"{cluster}/{plain(news.about)}"[:_DEDUP_MOST]}
    if news.severity == "Info":
        return event | {"event_action": "resolve"}
    summary = f"{cluster} {plain(news.about)}: {plain(news.reason)}: {plain(news.message)}"
    payload = {
        "summary": summary[:_SUMMARY_MOST],
        "source": cluster,
        "timestamp": instant(news.at_s),
        "severity": "warning",
        "component": plain(news.about),
        "class": plain(news.reason),
        "custom_details": {"message": plain(news.message), **news.facts},
    }
    links = [{"href": news.link, "text": "The commit"}] if news.link else []
    return event | {"event_action": "trigger", "client": "Muster", "payload": payload, "links": links}


_FORMS: Mapping[str, Callable[[News, str, str], Mapping[str, Any]]] = {
    "Webhook": _webhook,
    "Slack": _slack,
    "Teams": _teams,
    "PagerDuty": _pager_duty,
}
