"""What tests of the agent's process share."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.agent.processes import AgentPlace


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Iterator[AgentPlace]":
    from agent import process as process_module
    from agent.sandbox.world import SandboxWorld
    from tests.agent.processes import AgentPlace

    monkeypatch.setattr(process_module, "settle_heap", lambda: None)
    with SandboxWorld(tmp_path / "world", cluster="test", speed=60.0) as world:
        made = AgentPlace(tmp_path, world, monkeypatch)
        yield made
        for running in made.agents:
            if running.thread.is_alive():
                running.stop()
        world.api.drop_connections()
