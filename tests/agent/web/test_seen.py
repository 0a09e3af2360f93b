"""What the page remembers: the last pass, the latest lines of the journal, those of before, and no more than that."""

from pathlib import Path

import pytest

from agent.inbox import Done, Failed
from agent.journal import JOURNAL_LINES_MOST, latest_lines
from agent.mirror import Mirror
from agent.sync import SyncState
from agent.web.seen import EVENTS_MOST, PageWatcher
from fleet.actions import Announce, OpenGang, TerminateMachines
from tests.agent.web import stage
from tests.support.fleets import NOW, gang


def test_another_turn_is_another_version_and_the_last_one_stays_as_it_was() -> None:
    made = stage.world()
    watcher = stage.watching(made)
    before = watcher.now()
    made.waits(gang("later", queue="q-red", namespace="red"))
    watcher.turned(made.fleet, made.snapshot())
    after = watcher.now()
    assert after.version == before.version + 1
    assert before.last is not None
    assert after.last is not None
    assert len(after.last.snapshot.gangs) == len(before.last.snapshot.gangs) + 1
    assert after.last.snapshot.index is before.last.snapshot.index
    assert after.last.snapshot.index is not made.snapshot().index, "the brain's views are its own"


def test_decisions_and_what_came_of_them_are_remembered() -> None:
    watcher, made = PageWatcher(), stage.world()
    given_back = TerminateMachines(("i-1",), "Empty")
    watcher.acting(OpenGang(gang("g")), Mirror("c"), NOW)
    watcher.ended(Done(given_back), NOW + 1)
    watcher.ended(Failed(given_back, "no"), NOW + 2)
    watcher.told(Announce(gang("g").job, "Applied", "r is in force (approved by eve)"), NOW + 3)
    assert watcher.now().journal == (), "they are shown with the next turn"
    watcher.turned(made.fleet, made.snapshot())
    shown = [(it.at_s - NOW, it.said["event"]) for it in watcher.now().journal]
    assert shown == [(0, "queued"), (1, "returned"), (3, "sync")]
    assert "approved by eve" in watcher.now().journal[-1].said["message"]


def test_no_more_than_so_many_are_kept() -> None:
    watcher, made = PageWatcher(), stage.world()
    say = watcher.hearing(lambda _event: None, lambda: NOW)
    for number in range(EVENTS_MOST + 50):
        watcher.acting(OpenGang(gang(f"g{number}")), Mirror("c"), NOW + number)
        say(Announce(gang("g").job, "Queued", str(number)))
    watcher.turned(made.fleet, made.snapshot())
    seen = watcher.now()
    assert (len(seen.journal), len(seen.events)) == (JOURNAL_LINES_MOST, EVENTS_MOST)
    assert seen.events[-1].event.message == str(EVENTS_MOST + 49)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ('{"at_s": 5, "event": "queued"}\n', [(5.0, {"event": "queued"})]),
        ('half a line\n{"at_s": 6}\n[]\n{"event": "x"}\n"at_s"\n{"at_s": "never"}\n', [(6.0, {})]),
        ("".join(f'{{"at_s": {n}}}\n' for n in range(3000)), [(float(n), {}) for n in range(1000, 3000)]),
    ],
    ids=["empty", "one", "broken ones", "many"],
)
def test_an_earlier_journal_is_read_as_far_as_it_can_be(
    tmp_path: Path, text: str, expected: list[tuple[float, dict[str, str]]]
) -> None:
    file = tmp_path / "journal.jsonl"
    file.write_text(text, "utf-8")
    assert latest_lines(file) == expected


def test_of_a_large_journal_only_the_end_is_read(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    file.write_text("".join(f'{{"at_s": {n}, "x": "{"y" * 1000}"}}\n' for n in range(2000)), "utf-8")
    found = latest_lines(file)
    assert found[-1][0] == 1999
    assert 400 < len(found) < 600


def test_without_a_journal_there_is_none(tmp_path: Path) -> None:
    assert latest_lines(tmp_path / "nothing") == []


def test_what_was_before_is_shown_at_once() -> None:
    watcher = PageWatcher()
    watcher.lead(SyncState, [(5.0, {"event": "queued"})])
    assert [it.at_s for it in watcher.now().journal] == [5.0]
