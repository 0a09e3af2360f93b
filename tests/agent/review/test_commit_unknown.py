"""A forge whose interface lags behind its git: a commit that it does not know yet is waited for, and is no trouble."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from agent.review.reviewer import SOON_S, UNKNOWN_S
from agent.sync import SyncState
from providers.clock import VirtualClock
from providers.forge.github import GitHubForge, GitHubToken
from providers.forge.gitlab import GitLabForge, GitLabToken
from providers.forge.port import CommitUnknown, Deployment, Forge, Verdict
from providers.sim.forge import ForgeServer, ForgeState, GitHubDialect, GitLabDialect
from tests.agent.review.place import BASE, HEAD, STATUS, ReviewPlace, encoded, two_pools
from tests.support.fleets import NOW

PUSHED = "c" * 40


UNKNOWN = {"GitHub": "No commit found for SHA", "GitLab": "Commit Not Found"}


@pytest.fixture(params=sorted(UNKNOWN))
def lagging(request: pytest.FixtureRequest) -> Iterator[tuple[ForgeState, ForgeServer, ReviewPlace]]:
    """A pretended forge on loopback and a reviewer who asks it by HTTP."""
    clock = VirtualClock(NOW)
    state = ForgeState("acme", "fleet", clock)
    state.account("robot", "write", token="secret")
    is_github = request.param == "GitHub"
    made = ForgeServer(state, GitHubDialect) if is_github else ForgeServer(state, GitLabDialect, prefix="/api/v4")
    server = made.start()
    forge: Forge = (
        GitHubForge("acme/fleet", GitHubToken("secret"), clock=clock, url=server.url)
        if is_github
        else GitLabForge("acme/fleet", GitLabToken("secret"), clock=clock, url=server.root)
    )
    yield state, server, ReviewPlace(clock=clock, forge=forge)
    server.stop()


def head_ref(number: int, place: ReviewPlace) -> str:
    kind = "pull" if isinstance(place.forge, GitHubForge) else "merge-requests"
    return f"refs/{kind}/{number}/head"


def test_the_adapter_tells_it_apart_from_other_refusals(
    lagging: tuple[ForgeState, ForgeServer, ReviewPlace],
) -> None:
    _, _, place = lagging
    with place.forge, pytest.raises(CommitUnknown, match="|".join(UNKNOWN.values())):
        place.forge.merged_by(PUSHED)


def test_a_deployment_of_it_is_waited_for_as_well(lagging: tuple[ForgeState, ForgeServer, ReviewPlace]) -> None:
    _, _, place = lagging
    told = Deployment(PUSHED, "main", "muster/prod", Verdict.SUCCESS, "it is done")
    with place.forge, pytest.raises(CommitUnknown):
        place.forge.put_deployment(told)


def test_a_revision_is_followed_as_soon_as_the_forge_knows_it(
    lagging: tuple[ForgeState, ForgeServer, ReviewPlace],
) -> None:
    state, server, place = lagging
    place.state = SyncState(attempted=f"main@sha1:{PUSHED}", applied=f"main@sha1:{PUSHED}", outcome="Applied")
    assert place.reviewer.look() == SOON_S
    for _ in range(6):
        place.clock.advance(place.reviewer.look())
    assert place.told == [], "nobody is told of a failure"
    assert set(place.counted) == {"CommitUnknown"}
    asked = [it for it in server.exchanges if it.status in {404, 422}]
    assert len(asked) < 7, "it is asked ever more rarely"
    state.commits.add(PUSHED)
    place.clock.advance(60.0)
    assert place.reviewer.look() == 60.0
    assert place.told == []


def test_a_commit_that_stays_unknown_is_trouble_until_it_is_known(
    lagging: tuple[ForgeState, ForgeServer, ReviewPlace],
) -> None:
    state, _, place = lagging
    place.state = SyncState(attempted=f"main@sha1:{PUSHED}", applied=f"main@sha1:{PUSHED}", outcome="Applied")
    for _ in range(round(UNKNOWN_S) + 60):
        place.reviewer.look()
        place.clock.advance(1.0)
    assert len(place.told) == 1, "told once, while it rests as well"
    assert f"revision main@sha1:{PUSHED}" in place.told[0]
    assert any(words in place.told[0] for words in UNKNOWN.values())
    state.commits.add(PUSHED)
    place.clock.advance(60.0)
    place.reviewer.look()
    assert place.told[1:] == [""]


def test_the_status_of_a_head_waits_and_the_other_requests_do_not(
    lagging: tuple[ForgeState, ForgeServer, ReviewPlace],
) -> None:
    state, _, place = lagging
    ann = state.account("ann", "write")
    late, other = state.open("Late", ann, HEAD), state.open("Other", ann, BASE)
    state.commits.discard(HEAD)
    for request, head in ((late, HEAD), (other, BASE)):
        place.commits.refs[head_ref(request.number, place)] = head
        place.commits.merged[head] = encoded(two_pools())
    place.state = replace(place.state, attempted="", applied="")
    assert place.reviewer.look() == SOON_S
    assert [it.number for it in state.comments.values()] == [other.number]
    assert place.told == []
    state.commits.add(HEAD)
    place.clock.advance(60.0)
    place.reviewer.look()
    assert sorted(it.number for it in state.comments.values()) == [late.number, other.number]
    assert list(state.latest_statuses(HEAD)) == [STATUS]
