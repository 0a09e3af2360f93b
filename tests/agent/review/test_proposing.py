"""The agent proposes newer images: one request a release, closed ones stay closed, refusals stop nothing else."""

from dataclasses import replace

import pytest

from fleet.snapshot import Resolutions, Resolved
from model.loader import load
from model.pools import pool_hash
from providers.forge.port import ForgeUnreachable, Permission, RequestState
from tests.agent.review.forge import CommitsInMemory
from tests.agent.review.place import BASE, ReviewPlace, encoded
from tests.agent.scenes import files, pool, queue, team

BRANCH = "muster/images/h100/v20251112"


def pinned(version: str = "v20250505", **spec: object) -> dict[str, str]:
    template = {"amis": [{"alias": f"al2023@{version}"}], "images": "ProposeChange"}
    return files(pool(template=template, **spec), team(), queue())


def scene(newest: str = "v20251112", **shared: object) -> ReviewPlace:
    place = ReviewPlace(pinned(), **shared)
    place.commits.merged.setdefault(BASE, encoded(pinned()))
    publish(place, newest)
    return place


def publish(place: ReviewPlace, newest: str) -> None:
    found = {pool_hash(place.world.fleet.node_pools["h100"]): Resolved(newest_release=newest)}
    place.world = place.world._replace(snapshot=replace(place.world.snapshot, resolved=Resolutions(found=found)))


def test_a_newer_release_is_a_request_with_the_one_value_changed() -> None:
    place = scene()
    place.reviewer.look()
    (change,) = place.forge.proposed
    assert (change.branch, change.base, change.base_commit, change.path) == (BRANCH, "main", BASE, "fleet.yaml")
    before = pinned()["fleet.yaml"]
    assert change.content.decode() == before.replace("v20250505", "v20251112")
    assert load({"fleet.yaml": change.content}).node_pools["h100"].spec.template.pinned.version == "v20251112"
    place.reviewer.look()
    place.restarted().look()
    assert len(place.forge.proposed) == 1
    assert place.told in ([], [""])


def test_one_that_is_closed_stays_closed_and_the_next_release_has_its_own() -> None:
    place = scene()
    place.reviewer.look()
    (number,) = place.forge.requests
    place.forge.close_request(number)
    place.restarted().look()
    place.reviewer.look()
    assert len(place.forge.proposed) == 1
    publish(place, "v20251201")
    place.reviewer.look()
    assert [it.branch for it in place.forge.proposed] == [BRANCH, "muster/images/h100/v20251201"]


def test_a_newer_one_overtakes_what_is_open_and_an_older_one_does_not() -> None:
    place = scene()
    place.reviewer.look()
    publish(place, "v20251001")
    place.reviewer.look()
    assert len(place.forge.proposed) == 1, "the newest may be told wrongly for a while"
    publish(place, "v20251201")
    place.reviewer.look()
    states = {it.branch: it.state for it in place.forge.requests.values()}
    assert states == {BRANCH: RequestState.CLOSED, "muster/images/h100/v20251201": RequestState.OPEN}


def test_what_is_merged_and_not_in_force_yet_is_not_proposed_again() -> None:
    place = scene()
    place.commits.merged[BASE] = encoded(pinned("v20251112"))
    place.reviewer.look()
    assert place.forge.proposed == []


@pytest.mark.parametrize("fork", [False, True])
def test_what_the_agent_proposes_is_planned_in_the_cluster_though_no_app_may_write_as_a_user(fork: bool) -> None:
    place = scene()
    place.reviewer.look()
    ((number, request),) = place.forge.requests.items()
    assert place.forge.permission(request.author) < Permission.WRITE
    place.forge.requests[number] = replace(request, from_fork=fork)
    place.commits.refs[request.head_ref] = request.head
    place.commits.merged[request.head] = encoded(pinned("v20251112"))
    place.reviewer.look()
    assert ("without a look at the cluster" in place.forge.text(number)) is fork


def test_a_fork_s_branch_is_nobody_s_proposal() -> None:
    place = scene()
    place.proposes(pinned(limits={"nodes": 3}))
    place.forge.requests[7] = replace(place.forge.requests[7], branch=BRANCH, from_fork=True)
    place.reviewer.look()
    assert [it.branch for it in place.forge.proposed] == [BRANCH]
    assert place.forge.requests[7].state is RequestState.OPEN


@pytest.mark.parametrize("trouble", ["the forge refuses", "the value is no plain one", "the branch is gone"])
def test_what_cannot_be_proposed_is_told_and_stops_no_review(trouble: str) -> None:
    place = scene()
    place.proposes(pinned(limits={"nodes": 3}))
    if trouble == "the forge refuses":
        place.forge.refuses_proposals = True
    elif trouble == "the value is no plain one":
        text = pinned()["fleet.yaml"].replace("al2023@v20250505", "&a al2023@v20250505")
        place.commits.merged[BASE] = {"fleet.yaml": text.encode()}
    else:
        place.commits = place.reviewer.commits = CommitsInMemory({}, place.commits.merged)
        place.reviewer = place.restarted()
    place.reviewer.look()
    assert BRANCH in place.told[-1] or "cannot be fetched" in place.told[-1]
    if trouble != "the branch is gone":
        assert "would come into force" in place.forge.text(7)


def test_a_deposed_agent_proposes_nothing() -> None:
    place = scene()
    place.leads = False
    place.reviewer.look()
    assert place.forge.proposed == []


def test_a_forge_that_is_down_is_asked_again() -> None:
    place = scene()
    place.forge.fails = ForgeUnreachable("down")
    place.reviewer.look()
    place.forge.fails = None
    place.reviewer.look()
    assert len(place.forge.proposed) == 1
