"""GitHub's adapter keeps the contract, signed in by a token, as an App, and to an Enterprise Server."""

from collections.abc import Iterator

import pytest

from tests.providers.forge.conftest import MakeWorld, PretendedWorld
from tests.providers.forge.contract import ForgeContract


@pytest.fixture(params=[("token", ""), ("app", ""), ("app", "/api/v3")], ids=["token", "app", "app-enterprise"])
def world(request: pytest.FixtureRequest, make_world: MakeWorld) -> Iterator[PretendedWorld]:
    signed_in, prefix = request.param
    made = make_world(signed_in, prefix=prefix)
    with made.forge:
        yield made


class TestGitHubForge(ForgeContract):
    pass
