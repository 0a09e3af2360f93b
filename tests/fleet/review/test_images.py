"""Which releases of images are proposed for which pools, and what has overtaken what."""

from typing import Any

import pytest

from fleet.review.images import ImageProposal, image_proposals, is_of_ours, is_open, layouts_branch, overtaken
from fleet.snapshot import Resolutions, Resolved
from model.pools import pool_hash
from tests.support.fleets import FleetBuilder

PINNED = {"amis": [{"alias": "al2023@v20250505"}], "images": "ProposeChange"}


def proposed(template: dict[str, Any], newest: str) -> list[ImageProposal]:
    fleet = FleetBuilder().pool("h100", template=template).build()
    found = {pool_hash(fleet.node_pools["h100"]): Resolved(newest_release=newest)}
    return list(image_proposals(fleet, Resolutions(found=found)))


@pytest.mark.parametrize(
    ("template", "newest", "expected"),
    [
        pytest.param(PINNED, "v20251112", "al2023@v20251112", id="a newer one"),
        pytest.param(PINNED, "v20250505", "", id="the one that is declared"),
        pytest.param(PINNED, "v20250101", "", id="an older one"),
        pytest.param(PINNED, "", "", id="not known"),
        pytest.param({"amis": [{"alias": "al2023@v20250505"}]}, "v20251112", "", id="not asked for"),
        pytest.param(
            {"amis": [{"alias": "bottlerocket@v1.9.2"}], "images": "ProposeChange"},
            "v1.10.0", "bottlerocket@v1.10.0", id="versions are numbers",
        ),
    ],
)  # fmt: skip
def test_a_newer_release_is_proposed(template: dict[str, Any], newest: str, expected: str) -> None:
    assert [it.proposed for it in proposed(template, newest)] == [expected] * bool(expected)


def test_its_branch_names_pool_and_version() -> None:
    (it,) = proposed(PINNED, "v20251112")
    assert it.branch == "muster/images/h100/v20251112"
    assert it.title == "Node pool h100: images al2023@v20250505 to v20251112"


@pytest.mark.parametrize(
    ("branch", "is_overtaken", "stands"),
    [
        ("muster/images/h100/v20251001", True, False),
        ("muster/images/h100/v20251112", False, True),
        ("muster/images/h100/v20260101", False, True),  # what is newest may be told wrongly for a while
        ("muster/images/other/v20251001", False, False),
        ("muster/images/h100/v20251001/x", False, False),
        ("muster/images/h100/mine", False, False),
        ("h100/v20251001", False, False),
    ],
)
def test_which_branch_stands_in_its_place(branch: str, is_overtaken: bool, stands: bool) -> None:
    (it,) = proposed(PINNED, "v20251112")
    assert overtaken(branch, [it]) is is_overtaken
    assert is_open(it, [branch]) is stands


@pytest.mark.parametrize(
    ("branch", "ours"),
    [
        ("muster/images/h100/v20251112", True),
        (layouts_branch("a100-mig", "0123456789abcdef"), True),
        ("muster/layouts/a100-mig/latest", False),
        ("muster/layouts/01234567", False),
        ("muster/other/a100-mig/01234567", False),
        ("more-machines", False),
    ],
)
def test_what_the_agent_and_its_advice_propose_is_known_by_the_branch(branch: str, ours: bool) -> None:
    assert is_of_ours(branch, from_fork=False) is ours
    assert not is_of_ours(branch, from_fork=True), "anybody may name a branch of a fork"
