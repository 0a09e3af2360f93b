"""The agents of several clusters on one request: each says its part, and none takes another's away."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.review.approvers import Approvers
from agent.review.reviewer import Reviewer
from agent.review.world import LastPass
from agent.sync import SyncState
from fleet.review.comment import MOVED, said_in
from fleet.snapshot import Snapshot
from model.loader import load
from providers.clock import VirtualClock
from providers.forge.port import Comment, Permission, Verdict
from tests.agent.review.forge import BOT, CommitsInMemory, ForgeInMemory, commit
from tests.agent.scenes import CATALOG, files, pool, queue, team
from tests.support.fleets import NOW

BASE, HEAD, NEXT = commit(1), commit(2), commit(3)
CLUSTER = "apiVersion: muster.dev/v1alpha1\nkind: Cluster\nmetadata: {{name: {name}}}\nspec: {{bases: [../../base]}}\n"


def repository(nodes: int = 4, **own: str) -> dict[str, bytes]:
    """Three clusters over one base, with a pool of its own where `own` names one."""
    found = {"base/fleet.yaml": files(pool(limits={"nodes": nodes}), team(), queue())["fleet.yaml"]}
    found |= {f"clusters/{name}/cluster.yaml": CLUSTER.format(name=name) for name in "abc"}
    found |= {
        f"clusters/{name}/own.yaml": json.dumps(pool(it, types=("p5.48xlarge",), limits={"nodes": 1}))
        for name, it in own.items()
        if it
    }
    return {path: text.encode() for path, text in found.items()}


@dataclass
class RacyForge(ForgeInMemory):
    """Lets others go on just before a write arrives: they read what stood before it."""

    meanwhile: list[Callable[[], object]] = field(default_factory=list)

    def _others(self) -> None:
        waiting, self.meanwhile = self.meanwhile, []
        for call in waiting:
            call()

    def write_comment(self, number: int, text: str) -> Comment:
        """See `Forge`."""
        self._others()
        return super().write_comment(number, text)

    def change_comment(self, number: int, comment: Comment, text: str) -> None:
        """See `Forge`."""
        self._others()
        super().change_comment(number, comment, text)


class SeveralAgents:
    """A reviewer for each cluster, over one forge and one repository."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOW)
        self.forge = RacyForge(may={"ada": Permission.WRITE})
        self.commits = CommitsInMemory({"refs/heads/main": BASE}, {BASE: repository()})
        self.counted: dict[str, list[str]] = {}
        self.agents = {name: self.started(name) for name in "abc"}

    def started(self, name: str) -> Reviewer:
        counted = self.counted.setdefault(name, [])
        world = LastPass(load(repository(), cluster=name), Snapshot(now_s=NOW, catalog=CATALOG))
        state = SyncState(attempted=f"main@sha1:{BASE}", applied=f"main@sha1:{BASE}", outcome="Applied")
        return Reviewer(
            name, "main", lambda: self.forge, self.commits, lambda: world, lambda: state,
            self.clock, 60.0, counted.append, lambda _event: None, Approvers(lambda _event: None, ()),
        )  # fmt: skip

    def proposes(self, fleet: dict[str, bytes], head: str = HEAD) -> None:
        self.forge.opens(7, head, "ada", self.clock.now())
        self.commits.refs["refs/pull/7/head"] = head
        self.commits.merged[head] = fleet

    def looks(self, names: str = "abc") -> None:
        for name in names:
            self.agents[name].look()

    def sections(self) -> str:
        text = self.forge.text(7)
        return "".join(name for name in "abc" if said_in(text, name))

    def comments(self) -> Sequence[str]:
        return [it.text for it in self.forge.said.get(7, ()) if it.ours]


def test_each_agent_writes_its_section_and_its_status() -> None:
    place = SeveralAgents()
    place.proposes(repository(nodes=9))
    place.looks()
    assert place.sections() == "abc"
    assert [it.name for it in place.forge.statuses[HEAD]] == ["muster/a", "muster/b", "muster/c"]
    writes = place.forge.writes
    place.looks()
    assert place.forge.writes == writes


def test_an_agent_whose_cluster_is_not_touched_says_so_in_its_status_alone() -> None:
    place = SeveralAgents()
    place.proposes(repository(b="spare"))
    place.looks()
    place.looks()
    assert place.sections() == "b"
    told = {it.name: (it.verdict, it.summary) for it in place.forge.statuses[HEAD]}
    assert told["muster/a"] == (Verdict.SUCCESS, "changes nothing: no file that this cluster reads is changed")
    assert "would come into force" in told["muster/b"][1]
    assert place.counted == {"a": ["Untouched"], "b": ["Applies"], "c": ["Untouched"]}, "once, not at every look"


def test_a_request_that_begins_to_touch_a_cluster_and_ceases_to() -> None:
    place = SeveralAgents()
    place.proposes(repository(b="spare"))
    place.looks("a")
    place.proposes(repository(nodes=8), NEXT)
    place.looks("a")
    assert said_in(place.forge.text(7), "a") is not None
    place.proposes(repository(b="spare"), commit(4))
    place.looks("a")
    said = said_in(place.forge.text(7), "a")
    assert said is not None
    assert said.head == commit(4), "a section that stands is about the head, not about an older one"


def test_an_invalid_file_of_another_cluster_is_no_concern_of_this_one() -> None:
    place = SeveralAgents()
    place.proposes(repository() | {"clusters/b/own.yaml": b"kind: Nothing\n"})
    place.looks()
    assert place.sections() == "b"
    assert {it.name: it.verdict for it in place.forge.statuses[HEAD]} == {
        "muster/a": Verdict.SUCCESS, "muster/b": Verdict.FAILURE, "muster/c": Verdict.SUCCESS
    }  # fmt: skip


def test_two_agents_that_change_the_comment_at_once_lose_nothing() -> None:
    place = SeveralAgents()
    place.proposes(repository(nodes=9))
    place.looks("c")
    place.forge.meanwhile = [place.agents["b"].look]
    place.looks("a")
    assert place.sections() == "ac", "b wrote, looked that it stood, and was overwritten"
    place.looks()
    assert place.sections() == "abc"
    assert place.counted == {name: ["Applies"] for name in "abc"}, "nobody planned again"


def test_one_that_is_overwritten_before_it_looks_again_writes_again() -> None:
    place = SeveralAgents()
    place.proposes(repository(nodes=9))
    place.looks("a")
    stale = place.forge.text(7)
    place.looks("b")
    number = place.forge.said[7][0].id
    place.forge.said[7] = [replace(it, text=stale) for it in place.forge.said[7]]  # a's write of what it read earlier
    assert place.sections() == "a"
    place.looks("b")
    assert (place.sections(), place.forge.said[7][0].id) == ("ab", number)
    assert place.counted["b"] == ["Applies"]


def test_two_agents_that_make_the_comment_at_once_end_in_one() -> None:
    place = SeveralAgents()
    place.proposes(repository(nodes=9))
    place.forge.meanwhile = [place.agents["b"].look, place.agents["c"].look]
    place.looks("a")
    texts = place.comments()
    assert [text == MOVED for text in texts] == [False, True]
    assert all(said_in(texts[0], name) for name in "abc")
    place.forge.said[7] = place.forge.said[7][:1]
    place.looks()
    assert (place.sections(), len(place.comments())) == ("abc", 1)


def test_a_lost_section_is_not_answered_twice() -> None:
    place = SeveralAgents()
    place.proposes(repository(nodes=9))
    place.looks("a")
    empty = place.forge.text(7)
    place.forge.comment(7, "ada", "/muster plan")
    place.looks("b")
    answered = len(place.forge.answers)
    place.forge.said[7] = [replace(it, text=empty) if it.author == BOT else it for it in place.forge.said[7]]
    place.looks("b")
    assert len(place.forge.answers) == answered
    assert place.sections() == "ab"


def test_a_forge_on_which_writes_are_always_lost_is_not_written_to_for_ever() -> None:
    place = SeveralAgents()
    place.proposes(repository(nodes=9))
    place.looks("a")
    stale = place.forge.text(7)

    def overwritten() -> None:
        place.forge.said[7] = [replace(it, text=stale) for it in place.forge.said[7]]

    class Losing(RacyForge):
        def change_comment(self, number: int, comment: Comment, text: str) -> None:
            super().change_comment(number, comment, text)
            overwritten()

    place.forge.__class__ = Losing
    before = place.forge.writes
    place.looks("b")
    assert place.forge.writes - before == 5
    place.forge.__class__ = RacyForge
    place.looks("b")
    assert place.sections() == "ab"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from("abc"), max_size=2)), max_size=8))
@pytest.mark.slow
def test_however_they_meet_one_quiet_look_of_each_mends_all(meetings: list[tuple[str, list[str]]]) -> None:
    place = SeveralAgents()
    for turn, (first, others) in enumerate(meetings):
        place.proposes(repository(nodes=5 + turn), commit(10 + turn))
        place.forge.meanwhile = [place.agents[name].look for name in others if name != first]
        place.looks(first)
        place.forge.meanwhile = []
    place.proposes(repository(nodes=40), HEAD)
    place.looks()
    shown = [it for it in place.comments() if it != MOVED]
    assert len(shown) == 1
    for name in "abc":
        said = said_in(shown[0], name)
        assert said is not None
        assert said.head == HEAD
