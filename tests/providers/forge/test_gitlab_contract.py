"""GitLab's adapter keeps the contract, at the root of its host and below it."""

from collections.abc import Iterator

import pytest

from tests.providers.forge.conftest import MakeWorld, PretendedWorld
from tests.providers.forge.contract import ForgeContract


@pytest.fixture(params=["", "/code"], ids=["root", "path"])
def world(request: pytest.FixtureRequest, make_gitlab: MakeWorld) -> Iterator[PretendedWorld]:
    made = make_gitlab(path=request.param)
    with made.forge:
        yield made


class TestGitLabForge(ForgeContract):
    pass
