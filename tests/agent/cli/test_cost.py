"""`muster cost`: a month of a ledger in every format, hours that are not over yet, and what is asked wrongly."""

import csv
import io
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from agent.cli import exits
from agent.cli.app import app
from fleet.cost.machine_use import IDLE
from fleet.cost.open_hours import MeterState
from fleet.cost.records import HOUR_S, MachineSpan, Segment
from providers.store.port import OpenHours
from providers.store.sqlite import SqliteLedger
from tests.fleet.cost.test_records import use
from tests.providers.store.contract import H0, record

LEDGER = "ledger.db"


def muster(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["cost", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / LEDGER
    it = SqliteLedger(path)
    it.append([record(f"i-{n}", hour, "u", team="a", cost_micro_usd=10**6) for n in range(2) for hour in range(5)])
    it.append([record("i-x", 5, cost_micro_usd=4 * 10**6), record("i-o", 5, cluster="other", cost_micro_usd=10**6)])
    it.append([record("i-x", 24 * 40, cost_micro_usd=10**9)])  # another month
    it.close()
    return path


def test_a_month_by_team(ledger: Path) -> None:
    code, out, _ = muster("--ledger", ledger, "--month", "2026-10", "-o", "json")
    told = json.loads(out)
    assert code == exits.OK
    assert {line["team"]: line["usd"] for line in told["lines"]} == {"a": 10.0, IDLE: 5.0}
    assert told["total"]["usd"] == 15.0


def test_one_cluster_of_several(ledger: Path) -> None:
    _, out, _ = muster("--ledger", ledger, "--month", "2026-10", "--cluster", "other", "--by", "cluster", "-o", "csv")
    assert [(row["cluster"], float(row["usd"])) for row in csv.DictReader(io.StringIO(out))] == [("other", 1.0)]


@pytest.mark.parametrize("output", ["table", "csv", "json", "html", "focus"])
def test_every_format_tells_the_same_sum(ledger: Path, output: str) -> None:
    by = "day" if output == "focus" else "team,day"
    code, out, _ = muster("--ledger", ledger, "--month", "2026-10", "--by", by, "-o", output)
    assert code == exits.OK
    match output:
        case "csv":
            total = sum(float(row["usd"]) for row in csv.DictReader(io.StringIO(out)))
        case "focus":
            total = sum(float(row["BilledCost"]) for row in csv.DictReader(io.StringIO(out)))
        case "json":
            total = json.loads(out)["total"]["usd"]
        case _:
            total = 15.0 if "15.00" in out else 0.0
    assert total == 15.0


def test_focus_by_day_is_the_hours_summed_up(ledger: Path) -> None:
    by_hour, by_day = (
        list(csv.DictReader(io.StringIO(muster("--ledger", ledger, "--month", "2026-10", "-o", "focus", *by)[1])))
        for by in ((), ("--by", "day"))
    )
    assert (len(by_hour), len(by_day)) == (12, 4)
    for column in ("BilledCost", "PricingQuantity", "x_GpuHours"):
        assert sum(float(it[column]) for it in by_day) == pytest.approx(sum(float(it[column]) for it in by_hour))
    assert {(it["ChargePeriodStart"], it["ChargePeriodEnd"]) for it in by_day} == {
        ("2026-10-03T00:00:00Z", "2026-10-04T00:00:00Z")
    }


def test_hours_that_are_not_over_count_as_far_as_they_were_seen(ledger: Path) -> None:
    begin_s = H0 + 5 * HOUR_S  # written already; the next is open
    state = MeterState("c", {"i-9": MachineSpan((Segment(begin_s, use(machine="i-9")),))}, begin_s + 5400, begin_s)
    it = SqliteLedger(ledger)
    it.keep_open("c", OpenHours(state.until_s, msgspec.json.encode(state)))
    it.close()
    _, out, _ = muster("--ledger", ledger, "--month", "2026-10", "-o", "json")
    told = json.loads(out)
    assert told["total"]["usd"] == 15.0 + 18.0
    assert told["until"] == datetime.fromtimestamp(state.until_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "not until now"
    assert told["total"]["forecastUsd"] > told["total"]["usd"], "the month was not over when the agent last looked"


def test_the_settings_say_where_the_ledger_is(ledger: Path, tmp_path: Path) -> None:
    config = tmp_path / "muster.yaml"
    said: dict[str, Any] = {"cluster": "c", "region": "eu-west-1", "source": {"url": "https://git.example.com/f.git"}}
    config.write_text(yaml.safe_dump(said), encoding="utf-8")
    code, _, why = muster("--config", config, "--month", "2026-10")
    assert (code, "name no ledger" in why) == (exits.ERROR, True)
    config.write_text(yaml.safe_dump({**said, "ledger": {"path": str(ledger)}}), encoding="utf-8")
    code, out, _ = muster("--config", config, "--month", "2026-10", "-o", "focus")
    assert code == exits.OK
    assert {row["RegionId"] for row in csv.DictReader(io.StringIO(out))} == {"eu-west-1"}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--month", "october"], "'october' is no month such as 2026-10"),
        (["--by", "teams"], "did you mean 'team'?"),
        (["--by", ","], "--by names nothing"),
        (["--by", "team", "-o", "focus"], "of an hour (without --by) or of a day"),
    ],
)
def test_what_is_asked_wrongly(ledger: Path, arguments: list[str], why: str) -> None:
    code, out, told = muster("--ledger", ledger, *arguments)
    assert (code, out) == (exits.ERROR, "")
    assert why in told


def test_a_ledger_that_is_not_there(tmp_path: Path) -> None:
    code, _, why = muster("--ledger", tmp_path / "none.db", "--month", "2026-10")
    assert (code, "there is no ledger at" in why) == (exits.ERROR, True)
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize("output", ["table", "json", "html"])
def test_a_report_of_the_month(ledger: Path, output: str) -> None:
    arguments = ["report", "--ledger", str(ledger), "--month", "2026-10", "-o", output]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == exits.OK
    assert "15.0" in done.stdout
    wrong = CliRunner().invoke(app, [*arguments[:-4], "--month", "x"])
    assert (wrong.exit_code, "no month" in wrong.stderr) == (exits.ERROR, True)


HEAVY = ("fleet.snapshot", "model.kinds", "model.upstream", "fleet.deciders", "providers.kube", "agent.brain", "jinja2")
SETTINGS = ("agent.config", "pydantic", "yaml", "msgspec", "html")


@pytest.mark.parametrize("command", ["cost", "report"])
def test_costs_are_told_without_what_takes_long_to_import(command: str) -> None:
    """`bench/cli.py` has the times; these are what they were made of."""
    script = f"import agent.cli.{command}, sys; print(*sorted(set({HEAVY + SETTINGS!r}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == ""
