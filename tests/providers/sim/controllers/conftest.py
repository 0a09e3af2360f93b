import pytest

from tests.providers.sim.controllers.world import World


@pytest.fixture
def world() -> World:
    return World()
