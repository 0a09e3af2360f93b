import pytest

from tests.providers.sim.controllers.world import ControllerWorld


@pytest.fixture
def world() -> ControllerWorld:
    return ControllerWorld()
