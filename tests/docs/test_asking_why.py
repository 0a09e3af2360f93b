"""The guide to asking documents every command, option, key and word of an answer, and no other word."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from agent.answers.offers import offers_told
from agent.cli.app import app
from agent.cli.look import look_away
from agent.cli.offers import NOW_WORDS
from fleet.disruption import METHODS, outcomes
from fleet.explain import offers
from fleet.explain.offers import GpuRequest
from fleet.explain.verdicts import INVOLUNTARY
from tests.support.fleets import FleetBuilder

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "asking-why.md").read_text(encoding="utf-8")
COMMANDS: Any = typer.main.get_command(app)


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def table(text: str, head: str) -> set[str]:
    """The codes of a table's first column."""
    rows = text.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    return {code for row in rows for code in re.findall(r"`([^`]+)`", row.split("|")[1])}


def options(command: Any) -> set[str]:
    return {max(option.opts, key=len) for option in command.params if option.opts[0].startswith("-")}


def test_every_option_of_offers_is_documented() -> None:
    documented = table(section("What could serve it"), "option")
    assert documented == options(COMMANDS.commands["offers"])


@pytest.mark.parametrize(("name", "title"), [("node", "Why a machine is there"), ("pool", "What limits a pool")])
def test_every_option_of_explain_is_documented(name: str, title: str) -> None:
    text = PAGE.partition("## ")[0] + section(title)
    command = COMMANDS.commands["explain"].commands[name]
    assert [option for option in sorted(options(command)) if f"`{option}`" not in text] == []


def test_every_command_that_explains_is_listed() -> None:
    names = [f"muster explain {name}" for name in COMMANDS.commands["explain"].commands]
    assert [name for name in [*names, "muster offers", "muster plan"] if f"| `{name}" not in PAGE] == []


def test_every_key_of_an_offer_is_documented() -> None:
    fleet, look, ask = FleetBuilder().pool().build(), look_away("us-east-1"), GpuRequest("h100", 8)
    told = offers_told(fleet, look.snapshot, ask)
    assert json.loads(json.dumps(told)) == told
    text = section("What could serve it")
    assert [key for key in told if f"`{key}`" not in text] == []
    assert table(text, "key of an offer") == told["offers"][0].keys()


def test_every_obstacle_of_an_offer_is_documented() -> None:
    assert table(section("What could serve it"), "an obstacle") == {code for code in offers.OfferObstacle if code}
    assert NOW_WORDS.keys() == set(offers.OfferObstacle)


def test_every_method_is_documented_in_its_order() -> None:
    names = [*(method.name for method in METHODS), *INVOLUNTARY]
    text = section("Why a machine is there")
    rows = text.partition("| method |")[2].partition("\n\n")[0].splitlines()[2:]
    assert [re.findall(r"`([^`]+)`", row)[0] for row in rows] == names
    assert all(f"{name}: " in text for name in names)


def test_every_obstacle_of_a_machine_is_documented() -> None:
    text = section("Why a machine is there")
    assert table(text, "in brackets") >= {code for code in outcomes.Obstacle if code}
    assert all(f"`{outcome}`" in text for outcome in outcomes.DisruptionOutcome)
