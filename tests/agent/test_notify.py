"""Who is told what: routes by severity and team, where secrets come from, and what each form of message says."""

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.inbox import Done
from agent.mirror import Mirror
from agent.news import News
from agent.notify import Notifier
from agent.outbox import LOOKS_AGAIN_S, Attempt, Outbox
from agent.reports import sync_report
from agent.sync import Sync
from fleet.actions import Announce, SaveClaim, SaveGang
from fleet.cost.budgets import BudgetNews
from fleet.snapshot import GangState, JobRef, NodeDisruption, Snapshot
from model.fleet import Fleet
from model.plain_text import instant
from providers.clock import VirtualClock
from providers.kube.batches import Replace
from providers.kube.objects.reports import SyncReport
from tests.agent.receiver import SECRET_PATH, Receiver
from tests.support.fleets import NOW, FleetBuilder, gang
from tests.support.world import World

OID = "3f2a" * 10
ABOUT = JobRef("muster.dev/v1alpha1", "FleetSync", "", "c", "")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def policy(*sinks: dict[str, Any]) -> Fleet:
    builder = FleetBuilder().pool().team("t").queue("q", "t").team("other").queue("p", "other")
    return builder.policy(notifications=list(sinks)).build()


class Desk:
    """A notifier that sends at once, and who was told."""

    def __init__(self, *sinks: dict[str, Any], folder: Path | None = None, **environment: str) -> None:
        self.fleet = policy(*sinks)
        self.told: list[str] = []
        self.sync = Sync()
        link = "https://git.example.com/o/n/commit/{commit}"
        self.notifier = Notifier("c", self.sync, self._put, environment, folder, link)
        self.now_s = NOW

    def _put(self, sink: str, attempt: Attempt) -> None:
        if attempt().sent:
            self.told.append(sink)

    def _begin(self) -> None:
        self.now_s += 1000.0
        self.told.clear()
        self.notifier.turned(self.fleet, Snapshot(now_s=self.now_s))

    def of_gang(self, queue: str = "q", reason: str = "Admitted") -> list[str]:
        """Who is told that a gang has changed."""
        self._begin()
        action = SaveGang(gang("g", queue=queue, state=GangState.ADMITTED, reason=reason))
        self.notifier.acting(action, Mirror("c"), self.now_s)
        self.notifier.ended(Done(action), self.now_s)
        return list(self.told)

    def of_sync(self, reason: str, kind: str = "Normal", words: str = "words") -> list[str]:
        self._begin()
        self.notifier.hear(Announce(ABOUT, reason, words, "Warning" if kind == "Warning" else "Normal"))
        return list(self.told)


def sink(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "addressEnv": "URL", **more}


def test_routes_go_by_severity_and_team(receiver: Receiver) -> None:
    desk = Desk(
        sink("all", severity="Info"),
        sink("bad"),
        sink("ours", severity="Info", teams=["t"]),
        sink("theirs", severity="Info", teams=["other"]),
        URL=receiver.url,
    )
    assert desk.of_gang("q") == ["all", "ours"]
    assert desk.of_gang("p") == ["all", "theirs"]
    assert desk.of_gang("q", reason="InsufficientCapacity") == ["all", "bad", "ours"]
    assert desk.of_sync("Applied") == ["all"], "a revision is nobody's work"
    assert desk.of_sync("Refused", "Warning") == ["all", "bad"]


def test_a_machine_concerns_the_teams_whose_gangs_stand_on_it(receiver: Receiver) -> None:
    desk = Desk(sink("ours", teams=["t"]), sink("theirs", teams=["other"]), URL=receiver.url)
    world = World(desk.fleet, desk.now_s)
    claim = world.machine("m0")
    world.runs(gang("g", queue="q"), ("m0", 1))
    mirror = Mirror("c")
    mirror.gangs.observe(Replace({f"{it.namespace}/{it.workload}": it for it in world.gangs.values()}, "1"))
    mirror.claims.observe(Replace({"m0": claim}, "1"))
    desk._begin()
    desk.sync.state = replace(desk.sync.state, attempted="r1", applied="r1", author="Ada <ada@example.com>")
    leaving = NodeDisruption("Interrupted", "two minutes", NOW, NOW + 120)
    action = SaveClaim(replace(claim, disruption=leaving))
    desk.notifier.acting(action, mirror, desk.now_s)
    desk.notifier.ended(Done(action), desk.now_s)
    assert desk.told == ["ours"]
    ((_, body),) = receiver.heard
    assert (body["teams"], body["usdPerHour"], body["reason"]) == (["t"], claim.charged_usd_h, "Interrupted")
    assert (body["revision"], body["author"]) == ("r1", "Ada <ada@example.com>")


def test_news_of_a_revision_has_its_author_its_link_and_its_signature(receiver: Receiver) -> None:
    desk = Desk(sink("s", secretEnv="KEY", severity="Info"), URL=receiver.url, KEY="key")
    desk.sync.state = replace(desk.sync.state, attempted=f"main@sha1:{OID}", author="Ada <ada@example.com>")
    assert desk.of_sync("Applied", words="it is in force") == ["s"]
    ((path, body),) = receiver.heard
    assert path == SECRET_PATH
    told = replace(NEWS, at_s=desk.now_s)
    assert body == {
        "id": told.id,
        "time": instant(desk.now_s),
        "cluster": "c",
        "severity": "Info",
        "about": "fleet repository",
        "reason": "Applied",
        "message": "it is in force",
        "revision": f"main@sha1:{OID}",
        "author": "Ada <ada@example.com>",
        "link": f"https://git.example.com/o/n/commit/{OID}",
        "teams": [],
        "usdPerHour": None,
    }
    ((signature, raw),) = receiver.signed
    assert signature == "sha256=" + hmac.new(b"key", raw, hashlib.sha256).hexdigest()


NEWS = News("Info", "fleet repository", "Applied", "it is in force", f"main@sha1:{OID}")


def test_a_message_has_an_id_and_a_time_that_are_its_own_in_each_attempt(receiver: Receiver) -> None:
    attempts: list[Attempt] = []
    desk = Desk(sink("s", severity="Info"), URL=receiver.url)
    desk.notifier.put = lambda _sink, attempt: attempts.append(attempt)
    for _ in range(2):
        desk.of_sync("Applied")
    first, second = attempts
    for attempt in (first, first, second):
        attempt()
    (one, again, other) = (body for _, body in receiver.heard)
    assert one == again
    assert one["id"] != other["id"]
    assert one["time"] < other["time"]


def test_an_incident_is_opened_by_a_warning_and_closed_by_what_comes_after_it(receiver: Receiver) -> None:
    desk = Desk(sink("pager", type="PagerDuty", secretEnv="KEY"), URL=receiver.url, KEY="routing")
    assert desk.of_sync("Applied") == [], "nothing to close"
    assert desk.of_sync("Refused", "Warning", "too many nodes") == ["pager"]
    assert desk.of_sync("Merged") == [], "who merged it mends nothing"
    assert desk.of_sync("Applied") == ["pager"]
    assert desk.of_sync("Done") == [], "it is closed"
    opened, closed = (body for _, body in receiver.heard)
    assert (opened["routing_key"], opened["event_action"], closed["event_action"]) == ("routing", "trigger", "resolve")
    assert opened["dedup_key"] == closed["dedup_key"] == "c/fleet repository"
    assert opened["payload"]["summary"] == "c fleet repository: Refused: too many nodes"
    assert {name for name, _ in receiver.signed} == {""}, "its key is inside, and signs nothing"


def test_an_incident_is_opened_and_closed_again_by_the_same_words_within_five_minutes(receiver: Receiver) -> None:
    desk = Desk(sink("pager", type="PagerDuty", secretEnv="KEY"), sink("s"), URL=receiver.url, KEY="routing")
    desk._begin()
    for reason, kind in [("Refused", "Warning"), ("Refused", "Warning"), ("Applied", "Normal")] * 2:
        desk.notifier.hear(Announce(ABOUT, reason, "words", "Warning" if kind == "Warning" else "Normal"))
    assert desk.told == ["pager", "s", "pager", "pager", "pager"], "others are told once"
    incidents = [body["event_action"] for _, body in receiver.heard if "event_action" in body]
    assert incidents == ["trigger", "resolve", "trigger", "resolve"]


def test_teams_and_slack_get_a_message_of_their_own_form(receiver: Receiver) -> None:
    desk = Desk(sink("teams", type="Teams"), sink("slack", type="Slack"), URL=receiver.url)
    desk.sync.state = replace(desk.sync.state, attempted=f"main@sha1:{OID}", author="Ada")
    assert desk.of_sync("Refused", "Warning", "too many nodes") == ["teams", "slack"]
    card, text = (body for _, body in receiver.heard)
    content = card["attachments"][0]["content"]
    shown = [run["text"] for block in content["body"] for run in block["inlines"]]
    assert shown[:2] == ["c fleet repository: Refused", "too many nodes"]
    assert "author Ada" in shown
    assert content["actions"][0]["url"].endswith(OID)
    assert text["text"].startswith(":warning: *c* fleet repository: Refused\ntoo many nodes\n")
    assert text["text"].endswith(OID)


def test_secrets_in_files_are_read_anew_for_every_attempt(tmp_path: Path, receiver: Receiver) -> None:
    desk = Desk(sink("s", secretEnv="KEY", severity="Info"), folder=tmp_path, URL=receiver.url, KEY="environment")
    with capture_logs() as lines:
        assert desk.of_gang() == [], "with a folder only files count"
        (tmp_path / "URL").write_text(receiver.url + "\n", encoding="utf-8")
        assert desk.of_gang() == [], "what cannot be signed is not sent"
        (tmp_path / "KEY").write_text("one\n", encoding="utf-8")
        assert desk.of_gang() == ["s"]
        (tmp_path / "KEY").write_text("two", encoding="utf-8")
        assert desk.of_gang() == ["s"]
        (tmp_path / "URL").write_bytes(b"\xff\xfe")
        assert desk.of_gang() == []
    signed = zip((b"one", b"two"), receiver.signed, strict=True)
    expected = ["sha256=" + hmac.new(key, raw, hashlib.sha256).hexdigest() for key, (_, raw) in signed]
    assert [signature for signature, _ in receiver.signed] == expected
    assert [it["event"] for it in lines] == ["sink_without_address", "sink_without_secret", "sink_without_address"]
    assert "very-secret" not in str(lines)


@pytest.mark.parametrize("address", ["", "file:///etc/passwd", "ftp://x", "http://x/\r\nHost: y", "gopher://x"])
def test_only_addresses_of_the_web_are_used(address: str) -> None:
    desk = Desk(sink("s", severity="Info"), URL=address)
    with capture_logs() as lines:
        assert desk.of_gang() == []
    assert [it["event"] for it in lines] == ["sink_without_address"]


def test_the_same_news_is_told_once_within_five_minutes(receiver: Receiver) -> None:
    desk = Desk(sink("s", severity="Info"), URL=receiver.url)
    desk._begin()
    for _ in range(3):
        desk.notifier.hear(Announce(ABOUT, "Applied", "words", "Normal"))
    assert desk.told == ["s"]


def test_the_same_words_of_another_revision_are_news(receiver: Receiver) -> None:
    """The second revision is done in the words of the first; a mistake that is pushed again opens an incident again."""
    desk = Desk(sink("s", severity="Info"), sink("p", type="PagerDuty", secretEnv="KEY"), URL=receiver.url, KEY="key")
    desk._begin()
    for revision, reason, kind in (
        ("1", "Done", "Normal"),
        ("2", "Invalid", "Warning"),
        ("3", "Done", "Normal"),
        ("4", "Invalid", "Warning"),
    ):
        desk.sync.state = replace(desk.sync.state, attempted=revision)
        desk.notifier.hear(Announce(ABOUT, reason, "words", "Warning" if kind == "Warning" else "Normal"))
    assert desk.told == ["s", "s", "p", "s", "p", "s", "p"]
    events = [body["event_action"] for _, body in receiver.heard if "event_action" in body]
    assert events == ["trigger", "resolve", "trigger"]


def test_budgets_are_told_to_the_team_and_paged_from_the_second_level_on(receiver: Receiver) -> None:
    desk = Desk(
        sink("mine", severity="Info", teams=["t"]),
        sink("theirs", severity="Info", teams=["other"]),
        sink("warnings"),
        sink("page", type="PagerDuty", secretEnv="KEY"),
        URL=receiver.url,
        KEY="routing-key",
    )

    def told(level: int) -> list[str]:
        desk._begin()
        desk.notifier.hear_budget(BudgetNews("t", level, float(level), 100.0, "2026-10"))
        return list(desk.told)

    assert told(50) == ["mine"]
    assert told(80) == ["mine", "warnings", "page"]
    assert told(100) == ["mine", "warnings", "page"]
    assert told(0) == ["mine", "page"], "the incident is over"


def test_sinks_of_the_policy_that_nothing_reaches_are_a_condition() -> None:
    desk = Desk({"name": "a", "addressEnv": "A"}, {"name": "b", "addressEnv": "B"})
    desk.notifier.troubles = lambda: {"a": "it is gone", "b": "it does not answer", "of another policy": "it is gone"}
    assert conditions(desk)["NotificationsFailed"] == "sink a: it is gone; sink b: it does not answer"
    desk.notifier.troubles = dict
    assert "NotificationsFailed" not in conditions(desk)


def conditions(desk: Desk) -> dict[str, str]:
    """Type -> message, of the report after a turn."""
    desk.notifier.turned(desk.fleet, Snapshot(now_s=NOW))
    report = sync_report("s", desk.sync.state, 0, SyncReport("s"), desk.notifier.failures)
    return {it.type: it.message for it in report.findings}


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        pytest.param({}, "A holds no address that begins with https:// or http://", id="no address"),
        pytest.param({"A": "ftp://x"}, "A holds no address that begins with https:// or http://", id="not of the web"),
        pytest.param({"A": "https://x.example"}, "S holds no secret", id="no secret"),
    ],
)
def test_what_a_sink_lacks_is_why_nothing_is_sent(environment: dict[str, str], why: str) -> None:
    attempts: list[Attempt] = []
    desk = Desk({"name": "a", "addressEnv": "A", "secretEnv": "S", "severity": "Info"}, **environment)
    desk.notifier.put = lambda _sink, attempt: attempts.append(attempt)
    desk.notifier.turned(desk.fleet, Snapshot(now_s=NOW))
    desk.notifier.hear(Announce(ABOUT, "Applied", "x"))
    assert [attempt().why for attempt in attempts] == [why]


@pytest.mark.parametrize("before", ["", "ftp://x", "https://[::1", "https://"])
def test_a_sink_whose_address_was_mended_is_well_before_there_is_news(tmp_path: Path, before: str) -> None:
    """What only lacks something here is looked at again; nobody is sent anything for it."""
    clock = VirtualClock(NOW)
    outbox = Outbox(lambda _sink, _outcome: None, clock)
    (tmp_path / "URL").write_text(before, encoding="utf-8")
    desk = Desk(sink("a", severity="Info"), folder=tmp_path)
    desk.notifier.put, desk.notifier.troubles = outbox.put, outbox.troubles
    desk.notifier.turned(desk.fleet, Snapshot(now_s=NOW))
    desk.notifier.hear(Announce(ABOUT, "Applied", "x"))
    outbox.step()
    clock.advance(LOOKS_AGAIN_S)
    outbox.step()
    told = conditions(desk)["NotificationsFailed"]
    assert told.startswith("sink a: ")
    assert told.endswith(f" (since {instant(NOW)})")
    (tmp_path / "URL").write_text("http://127.0.0.1:1/nobody", encoding="utf-8")
    clock.advance(LOOKS_AGAIN_S)
    outbox.step()
    assert "NotificationsFailed" not in conditions(desk)
    assert outbox.step() is None, "nothing waits, and nothing is looked at any more"


def test_a_sink_that_is_declared_otherwise_is_looked_at_as_it_is_now(tmp_path: Path) -> None:
    attempts: list[Attempt] = []
    desk = Desk({"name": "a", "addressEnv": "MISSPELT", "severity": "Info"}, folder=tmp_path)
    desk.notifier.put = lambda _sink, attempt: attempts.append(attempt)
    desk.notifier.turned(desk.fleet, Snapshot(now_s=NOW))
    desk.notifier.hear(Announce(ABOUT, "Applied", "x"))
    still = attempts[0]().still
    assert still is not None
    assert still() == "MISSPELT holds no address that begins with https:// or http://"
    (tmp_path / "URL").write_text("https://x.example", encoding="utf-8")
    desk.notifier.turned(policy(sink("a")), Snapshot(now_s=NOW))
    assert still() == ""
    desk.notifier.turned(policy(sink("b", addressEnv="NONE")), Snapshot(now_s=NOW))
    assert still() == "", "it is declared no more"
