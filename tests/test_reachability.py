"""Nothing is shipped that no command reaches, but what stands here with its reason."""

import pytest

from tests.support.reachability import PACKAGES, Key, dead, definitions, modules, reached

COMMANDS = ("agent.cli", "agent.cli.app", "agent.cli.sync_commands", "agent.simulation.__main__")
"""`[project.scripts]` starts `agent.cli:main`, which imports the commands when it is called; `python -m
agent.simulation` plays histories."""
STAGES = (
    "agent.simulation.world",
    "agent.simulation.process",
    "providers.sim.direct",
    *(f"providers.sim.forge.{it}" for it in ("forgejo", "gitlab.routes", "server", "state")),
)
"""Modules whose words serve scenes in tests beside the command that uses them."""

BESIDE = {
    "agent.__main__": "`python -m agent` is `muster`",
    "providers.sim.ec2.__main__": "`python -m providers.sim.ec2`: a fake AWS account as a process of its own",
    "fleet.replay.quota": "a stream of jobs through the quota engine alone, for Kueue's performance cases",
}
"""Modules that no command of `muster` reaches -> why they are shipped."""

TRUST = "A plan that can be believed, from a repository that is trusted no further than its signature"
REAL = "On a real cluster: what a real control plane showed, and the facts to keep it so"
ONE_ENGINE = (
    "One engine for every pod: ordinary pods served, every constraint honoured, and the facts answered by what runs"
)
KEPT: dict[Key, str] = {
    ("providers.sim.loopback", "LoopbackServer.drop_connections"): REAL,  # cuts,
}
"""What nothing in the product calls yet -> the open issue that needs it."""


def test_every_module_is_reached_by_a_command() -> None:
    assert set(modules()) - reached(COMMANDS) == set(BESIDE)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_search_sees_the_packages(package: str) -> None:
    assert len([name for name in reached(COMMANDS) if name.startswith(package)]) > 30


def outside() -> set[Key]:
    """What is called from elsewhere: the console script, and whatever the modules beside it offer."""
    offered = {
        key
        for key in definitions()
        if key[0] in {*BESIDE, *STAGES} and "_" not in (key[1][0], key[1].partition(".")[2][:1])
    }
    return {("agent.cli", "main")} | offered


def test_everything_is_called_by_something() -> None:
    """Delete what is listed here, or move it to the tests or the benches that use it."""
    assert dead(frozenset(outside() | KEPT.keys())) == ()


@pytest.mark.parametrize("key", KEPT, ids=".".join)
def test_what_is_kept_for_later_is_still_called_by_nothing(key: Key) -> None:
    assert key in definitions()
    assert key in dead(frozenset(outside())), "it is used now: take it from the list"
