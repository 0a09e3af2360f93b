"""Every page of what was seen: what it tells, whom it tells it, that nothing bites, and that no link leads nowhere."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import count
from urllib.parse import parse_qsl, urljoin, urlsplit

import pytest

from agent.sync import SyncState
from agent.web.pages import KEPT_PAGES, Busy, Pages
from agent.web.seen import PageWatcher, Scope
from agent.web.time_share import AT_ONCE_S, SHARE
from tests.agent.web import stage
from tests.agent.web.stage import EagerClock, HandClock
from tests.support.fleets import foreign_pod, gang, job_of, pod_set

HOST = "http://muster"
ADDRESSES = (
    "/", "/queues", "/queues/q-red", "/gangs", "/gangs?state=Pending", "/gangs/red/job-red-0", "/gangs/blue/blue-1",
    "/machines", "/machines?by=team", "/machines?by=cost&pool=h100", "/machines/m0", "/machines/m2",
    "/machines/stranger", "/money", "/money?team=red", "/money?month=2026-12", "/money?month=2026-12&team=red",
    "/money?month=nonsense", "/market", "/plan", "/journal", "/journal?event=gang",
)  # fmt: skip


class PageReader(HTMLParser):
    """What a page holds: links, tags, attributes, words."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))

    def handle_data(self, data: str) -> None:
        self.words += data


def shown(watcher: PageWatcher, address: str, scope: Scope | None = None) -> str | None:
    parts = urlsplit(address)
    found = Pages(watcher, EagerClock()).find(parts.path, dict(parse_qsl(parts.query)), scope or Scope())
    return found.html.decode() if found else None


@pytest.fixture(scope="module")
def watcher() -> PageWatcher:
    return stage.watching(stage.world())


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/", ("main@sha1:0123456789ab", "3 Ready", "1 Leaving", "1 Unclaimed", "$392.00", "$4,012.50", "blue/blue-1")),
        ("/queues", ("org", "red", "blue", "q-red", "h100", "GPU", "16", "24", "8")),
        ("/queues/q-red", ("red/red-0", "red/red-2", "98.00", "Nothing waits")),
        ("/queues/q-blue", ("blue/blue-1", "16 GPU", "blue/blue-0")),
        ("/gangs?state=Pending", ("1 found", "blue/blue-1")),
        ("/gangs?q=red-1", ("1 found", "red/red-1")),
        (
            "/gangs/red/job-red-0",
            ("red/red-0", "Timeline", "admitted", "it fits", "m0", "98.00 an hour", "red-0 may start"),
        ),
        ("/gangs/blue/job-blue-1", ("Position", "1 of 1", "asks 16", "start together")),
        ("/machines", ("h100", "of no pool")),
        ("/machines/m2", ("Leaving", "Drifted: its pool declares another image", "8 of 8 used", "red/red-2")),
        ("/machines/stranger", ("Unclaimed", "0 of 4 used")),
        ("/money", ("red", "4,000.00", "5,000.00", "1,000.00", "294.00")),
        ("/money?team=red", ("Gangs of red", "red/red-0", "98.00")),
        ("/money", ("Months by the ledger", "2027-01", "1,000.00", "2026-12", "2,540.00")),
        ("/money?month=2026-12", ("red/red-of-old", "2,400.00", "blue/blue-of-old", "2,500.00")),
        ("/money?month=2026-12&team=blue", ("2026-12: blue", "blue/blue-of-old", "40.00")),
        ("/market", ("p5.48xlarge", "Short now", "in 5m", "98.00", "40.00")),
        ("/journal", ("red/red-0", "it fits", "instances i-1, i-2")),
        ("/plan", ("No plan has been made",)),
    ],
)
def test_a_page_tells(watcher: PageWatcher, address: str, words: tuple[str, ...]) -> None:
    html = shown(watcher, address)
    assert html is not None
    told = PageReader(html).words
    assert [word for word in words if word not in told] == []


def test_what_a_team_pays_for_pods_in_no_queue_stands_beside_its_gangs() -> None:
    """The hour of its gangs was less than the hour of the team, and nothing said why."""
    made = stage.world()
    made.machine("m9")
    shape = replace(pod_set(gpu=4), namespace="red")
    some = foreign_pod("p", made.claims["m9"].node, shape.requests, shape=shape, owner="Deployment/notebooks")
    made.stands(replace(some, namespace="red"))
    watcher = stage.watching(made)
    told = PageReader(shown(watcher, "/money?team=red") or "").words
    assert "Pods of red in no queue" in told
    assert "red/Deployment/notebooks" in told
    assert "notebooks" not in (shown(watcher, "/money?team=red", Scope(frozenset({"blue"}))) or "")
    assert "in no queue" not in (shown(watcher, "/money?team=blue") or "")


def test_a_job_in_no_queue_is_listed_and_has_a_page() -> None:
    """Who looked for it in the browser found nothing, though the command line and an event told of it."""
    made = stage.world()
    job = job_of(gang("unnamed", queue="", namespace="red"))
    made.jobs[job.ref.uid] = replace(job, may_be_queued=True)
    watcher = stage.watching(made)
    for address in ("/gangs", "/gangs?q=unn"):
        html = shown(watcher, address) or ""
        assert "In no queue" in html
        assert "./gangs/red/unnamed" in PageReader(html).links
    for address in ("/gangs?state=Pending", "/gangs?q=other"):
        assert "In no queue" not in (shown(watcher, address) or "")
    assert "create it with the label muster.dev/queue" in (shown(watcher, "/gangs/red/unnamed") or "")
    blue = Scope(frozenset({"blue"}))
    assert "unnamed" not in (shown(watcher, "/gangs", blue) or "")
    assert shown(watcher, "/gangs/red/unnamed", blue) is None


@pytest.mark.parametrize(
    "address", ["/nothing", "/queues/nobody", "/gangs/red/nobody", "/machines/nobody", "/gangs/red", "/..", "/queues/"]
)
def test_what_is_not_there_has_no_page(watcher: PageWatcher, address: str) -> None:
    assert shown(watcher, address) is None


def crawled(watcher: PageWatcher) -> Iterator[tuple[str, str | None]]:
    """Every page that links lead to, from the first one."""
    seen, waiting = {"/"}, ["/"]
    while waiting:
        address = waiting.pop()
        html = shown(watcher, address)
        yield address, html
        for link in PageReader(html).links if html else ():
            target = urljoin(f"{HOST}{address}", link).removeprefix(HOST).partition("#")[0]
            if target not in seen:
                seen.add(target)
                waiting.append(target)


def test_no_link_leads_nowhere(watcher: PageWatcher) -> None:
    found = dict(crawled(watcher))
    assert [address for address, html in found.items() if html is None] == []
    assert {"/gangs/red/job-red-0", "/machines/m0", "/queues/q-blue", "/money?team=red"} <= found.keys()


def test_a_gang_of_no_declared_queue_has_no_link_to_it() -> None:
    made = stage.world()
    made.waits(gang("lost", queue="nowhere", namespace="red"))
    html = shown(stage.watching(made), "/gangs/red/lost") or ""
    assert "nowhere" in html
    assert "queues/nowhere" not in html


# -- safe to look at --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [*ADDRESSES, "/machines/evil"])
def test_names_of_others_are_words_and_nothing_else(address: str) -> None:
    """No element, attribute or sign of theirs; nothing that the policy against inline code would have to stop."""
    journal = [*stage.JOURNAL, (1.0, {"event": stage.HOSTILE, "gang": stage.HOSTILE, "message": stage.HOSTILE})]
    said = SyncState(applied=stage.HOSTILE, author=stage.HOSTILE, message=stage.HOSTILE, distrust=stage.HOSTILE)
    html = shown(stage.watching(stage.hostile(stage.world()), said, journal), address)
    if html is None:
        assert address == "/machines/evil"
        return
    page = PageReader(html)
    assert [tag for tag, _ in page.tags if tag in {"img", "style", "iframe", "object", "base"}] == []
    assert [
        it for tag, it in page.tags if tag == "script" and not str(it.get("src")).startswith(("./static/", "../"))
    ] == []
    handlers = [name for _, found in page.tags for name in found if name.startswith("on") or name == "style"]
    assert handlers == []
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", html)
    assert "{{7*7}}" in page.words or "49" not in page.words


def test_the_hostile_words_are_shown(watcher: PageWatcher) -> None:
    html = shown(stage.watching(stage.hostile(stage.world())), "/gangs?state=Pending")
    assert html is not None
    assert "<img src=x onerror=alert(1)>" in PageReader(html).words
    assert "\\u202e\\x1b[31m" in html


# -- whom it tells ----------------------------------------------------------------------------------------------------

RED = Scope(frozenset({"red"}))


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_viewer_of_one_team_learns_no_name_of_another(watcher: PageWatcher, address: str) -> None:
    html = shown(watcher, address, RED)
    if html is None:
        assert address == "/gangs/blue/blue-1"
        return
    assert re.findall(r"blue|secret", html) == []


def test_a_viewer_of_one_team_sees_its_months(watcher: PageWatcher) -> None:
    html = shown(watcher, "/money?month=2026-12", RED) or ""
    assert ("2,500.00" in html, "2,540.00" in html, "red-of-old" in html) == (True, False, True)


def test_a_viewer_of_one_team_sees_its_own(watcher: PageWatcher) -> None:
    assert "red/red-0" in (shown(watcher, "/gangs", RED) or "")
    assert "q-red" in (shown(watcher, "/queues", RED) or "")
    assert "others" in (shown(watcher, "/machines?by=team", RED) or "")
    assert "$294.00" in (shown(watcher, "/", RED) or "")


def test_a_viewer_of_one_team_cannot_ask_where_another_runs(watcher: PageWatcher) -> None:
    tiles = '<a class="t s-'
    assert (shown(watcher, "/machines?team=red", RED) or "").count(tiles) == 3
    assert (shown(watcher, "/machines?team=blue", RED) or "").count(tiles) == 0
    assert (shown(watcher, "/machines?team=blue") or "").count(tiles) == 1


def test_the_teams_own_queue_is_reached_by_its_members_only(watcher: PageWatcher) -> None:
    assert shown(watcher, "/queues/q-blue", RED) is None
    assert shown(watcher, "/gangs/blue/job-blue-0", RED) is None


# -- once for all viewers ---------------------------------------------------------------------------------------------


def test_a_page_is_made_once_a_version() -> None:
    watcher, clock = stage.watching(stage.world()), HandClock(50.0)
    pages = Pages(watcher, clock)
    first = pages.find("/", {}, Scope())
    assert pages.find("/", {"utm": "x"}, Scope()) is first
    assert pages.find("/", {}, RED) is not first
    made = stage.world()
    watcher.turned(made.fleet, made.snapshot())
    assert pages.find("/", {}, Scope()) is first, "nobody sees more than one picture a second"
    clock.now_s += 60
    again = pages.find("/", {}, Scope())
    assert again is not None
    assert first is not None
    assert again.page.version == first.page.version + 1


def test_only_parts_that_changed_have_another_hash() -> None:
    made = stage.world()
    watcher, clock = stage.watching(made), HandClock(50.0)
    pages = Pages(watcher, clock)
    before = pages.find("/machines", {}, Scope())
    made.claims["m0"] = made.claims["m0"].__class__(**{**fields_of(made.claims["m0"]), "deleting": True})
    watcher.turned(made.fleet, made.snapshot())
    clock.now_s += 60
    after = pages.find("/machines", {}, Scope())
    assert before is not None
    assert after is not None
    changed = [it.id for it, old in zip(after.page.parts, before.page.parts, strict=True) if it.hash != old.hash]
    assert changed == ["head", "m1"], "the legend and the block of its pool; not that of the stranger"


def fields_of(value: object) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}  # type: ignore[attr-defined]


def test_the_pages_kept_are_bounded() -> None:
    pages = Pages(stage.watching(stage.world()), EagerClock())
    for number in range(KEPT_PAGES + 20):
        pages.find("/gangs", {"q": f"no-{number}"}, Scope())
    assert len(pages._kept) <= KEPT_PAGES
    assert pages._kept_bytes == sum(it.size for it in pages._kept.values())


def test_the_first_page_is_made_before_anybody_asks() -> None:
    made, watcher = stage.world(), PageWatcher()
    pages = Pages(watcher, HandClock(50.0))
    watcher.turned(made.fleet, made.snapshot())
    pages.executor.submit(int).result()
    pages._share.spend(5.0)
    assert pages.find("/", {}, Scope(), whole=False) is not None
    with pytest.raises(Busy):
        pages.find("/gangs", {}, Scope(), whole=False)


def test_whoever_asks_too_much_waits() -> None:
    clock = HandClock(50.0)
    pages = Pages(stage.watching(stage.world()), clock)
    kept = pages.find("/", {}, Scope())
    pages._share.spend(5.0)
    with pytest.raises(Busy) as told:
        pages.find("/gangs", {}, Scope())
    assert told.value.after_s > 60
    assert pages.find("/", {}, Scope()) is kept
    clock.now_s += 200
    assert pages.find("/gangs", {}, Scope()) is not None


def test_fifty_viewers_take_the_share_of_time_that_the_page_has_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new picture four times a second, and each of them wants another page of it, which takes a tenth of a second."""
    cpu_s = count(0)
    monkeypatch.setattr("agent.web.pages.time.thread_time", lambda: 0.1 * next(cpu_s))
    made, clock, spent_s = stage.world(), HandClock(), 0.0
    watcher = stage.watching(made)
    pages, known = Pages(watcher, clock), dict.fromkeys(range(50), -1)
    for _ in range(4 * LASTS_S):
        clock.now_s += 0.25
        watcher.turned(made.fleet, made.snapshot())
        for viewer in [it for it, version in known.items() if version != pages.current().version]:
            before = next(cpu_s)
            with contextlib.suppress(Busy):
                found = pages.find("/gangs", {"q": str(viewer)}, Scope(), whole=False)
                known[viewer] = found.page.version if found else -1
            spent_s += 0.1 * ((next(cpu_s) - before - 1) // 2)
    assert 0.02 < spent_s / LASTS_S < SHARE + 2 * AT_ONCE_S / LASTS_S
    assert min(known.values()) >= 0, "nobody is left without a page"


LASTS_S = 200


def test_before_the_first_pass_the_sync_says_why() -> None:
    watcher = PageWatcher()
    assert "no revision read yet" in (shown(watcher, "/") or "")
