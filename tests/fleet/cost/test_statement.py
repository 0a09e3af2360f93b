"""Months summed up: lines and totals, borrowed and idle, forecasts, sources of prices, and how they are printed."""

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.cost.focus import FOCUS_COLUMNS, Seller, focus_rows
from fleet.cost.machine_use import IDLE, UNOBSERVED
from fleet.cost.records import DAY_S, HOUR_S, LedgerRecord
from fleet.cost.statement import DIMENSIONS, LATER, NO_TEAM, Month, UnknownMonth, statement
from fleet.cost.statement_text import statement_csv, statement_html, statement_json, statement_table
from tests.providers.store.contract import record as made

OCTOBER = Month.named("2026-10")
SPEC = json.loads((Path(__file__).resolve().parents[2] / "data" / "focus-1.0.json").read_text("utf-8"))["columns"]


def record(subject: str = IDLE, hour: int = 0, **more: Any) -> LedgerRecord:
    facts = {"cost_micro_usd": 1_000_000, "gpu_s": 3600.0, "priced_at_s": OCTOBER.begin_s}
    return replace(made(subject=subject, **{**facts, **more}), hour_s=OCTOBER.begin_s + hour * HOUR_S)


# -- months -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "days"), [("2026-10", 31), ("2026-12", 31), ("2028-02", 29), ("2027-02", 28)])
def test_months_are_of_the_calendar(name: str, days: int) -> None:
    it = Month.named(name)
    assert it.end_s - it.begin_s == days * DAY_S
    assert Month.of(it.begin_s) == Month.of(it.end_s - 1) == it
    assert Month.of(it.end_s) != it


@pytest.mark.parametrize(
    "text", ["", "2026", "2026-13", "2026-00", "26-10", "2026-1", "2026-10-01", "²⁰²⁶-10", "0000-01"]
)
def test_what_is_no_month(text: str) -> None:
    with pytest.raises(UnknownMonth, match="such as 2026-10"):
        Month.named(text)


# -- sums -------------------------------------------------------------------------------------------------------------

RECORDS = [
    record("u1", team="a", queue="qa", namespace="a", name="x", borrowed=True, cost_micro_usd=3_000_000),
    record("u1", 30, team="a", queue="qa", namespace="a", name="x", cost_micro_usd=2_000_000, lost_micro_usd=500_000),
    record("ns/Deployment/web", team="", queue="", namespace="ns", name="Deployment/web", gpu_s=0.0),
    record(IDLE, 1, cost_micro_usd=4_000_000),
    record(UNOBSERVED, 1, cost_micro_usd=250_000),
]


@pytest.mark.parametrize(
    ("by", "found"),
    [
        ("team", {("a",): 5.0, (NO_TEAM,): 1.0, (IDLE,): 4.0, (UNOBSERVED,): 0.25}),
        ("day", {("2026-10-01",): 8.25, ("2026-10-02",): 2.0}),
        ("gang", {("a/x",): 5.0, ("ns/Deployment/web",): 1.0, (IDLE,): 4.0, (UNOBSERVED,): 0.25}),
        ("pool", {("h100",): 10.25}),
        (
            "queue,pool",
            {("qa", "h100"): 5.0, ("(none)", "h100"): 1.0, (IDLE, "h100"): 4.0, (UNOBSERVED, "h100"): 0.25},
        ),
    ],
)
def test_lines(by: str, found: dict[tuple[str, ...], float]) -> None:
    it = statement(RECORDS, OCTOBER, by.split(","), OCTOBER.end_s)
    assert {key: line.cost / 1e6 for key, line in it.lines.items()} == found
    assert (it.total.cost, it.total.borrowed, it.total.lost) == (10_250_000, 3_000_000, 500_000)


def test_the_dearest_comes_first_and_days_in_their_order() -> None:
    assert statement(RECORDS, OCTOBER, ["team"], OCTOBER.end_s).ranked[0][0] == ("a",)
    days = [key for key, _ in statement(RECORDS[::-1], OCTOBER, ["day", "team"], OCTOBER.end_s).ranked]
    assert [day for day, _ in days] == sorted(day for day, _ in days)


def test_the_forecast_is_what_was_spent_and_what_is_to_come() -> None:
    """To come: one that has spent, one that has not, and of the days after the running one."""
    spent = [record("u", hour, team="a", cost_micro_usd=10**6) for hour in range(30)]
    later = replace(record("u", team="a", cost_micro_usd=7 * 10**6), hour_s=inf)
    to_come = [record("u", 30, team="a", cost_micro_usd=2 * 10**6), record("v", 30, team="b"), later]
    it = statement(spent, OCTOBER, ["team"], OCTOBER.begin_s + 30 * HOUR_S, to_come)
    told = {key: (line.cost // 10**6, line.forecast // 10**6) for key, line in it.lines.items()}
    assert told == {("a",): (30, 39), ("b",): (0, 1)}
    assert (it.total.cost // 10**6, it.total.forecast // 10**6, it.total.gpu_s) == (30, 40, 30 * 3600.0)
    days = statement(spent, OCTOBER, ["day"], OCTOBER.begin_s + 30 * HOUR_S, to_come).ranked
    assert [(*key, line.cost // 10**6, line.forecast // 10**6) for key, line in days] == [
        ("2026-10-01", 24, 24),
        ("2026-10-02", 6, 9),
        (LATER, 0, 7),
    ]


def test_prices_tell_where_they_come_from_and_how_old_they_were() -> None:
    records = [record("u", 5), record("v", 50), record("w", 3, price_source="plan", priced_at_s=OCTOBER.begin_s)]
    it = statement(records, OCTOBER, ["team"], OCTOBER.end_s)
    assert {source: (used.cost, used.oldest_s / HOUR_S) for source, used in it.prices.items()} == {
        "Pricing API": (2_000_000, 50.0),
        "plan": (1_000_000, 3.0),
    }
    assert "2.00 USD by Pricing API, at most 2 days old when charged; 1.00 USD by plan, at most 3.0 h old" in (
        statement_table(it)
    )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_lines_sum_to_the_total_by_whatever_they_are_told_apart(data: st.DataObject) -> None:
    by = data.draw(st.lists(st.sampled_from(sorted(DIMENSIONS)), min_size=1, max_size=4, unique=True))
    records = [
        record(
            data.draw(st.sampled_from([IDLE, "u", "v"])),
            data.draw(st.integers(0, 743)),
            team=data.draw(st.sampled_from("abc")),
            cost_micro_usd=data.draw(st.integers(0, 10**9)),
            borrowed=data.draw(st.booleans()),
        )
        for _ in range(data.draw(st.integers(0, 20)))
    ]
    it = statement(records, OCTOBER, by, OCTOBER.begin_s + data.draw(st.floats(0, 40 * DAY_S)))
    for name in ("cost", "borrowed", "lost", "forecast"):
        assert sum(getattr(line, name) for line in it.lines.values()) == getattr(it.total, name)
    assert it.total.cost == sum(each.cost_micro_usd for each in records)


# -- as text ----------------------------------------------------------------------------------------------------------


def test_as_a_table() -> None:
    text = statement_table(statement(RECORDS, OCTOBER, ["team"], OCTOBER.end_s))
    assert re.search(r"^a +5\.00 +48\.8% +3\.00 +0\.50 +2\.0 +5\.00$", text, re.MULTILINE), text
    assert re.search(r"^total +10\.25 +100\.0%", text, re.MULTILINE)
    assert "2026-10: the whole month" in text


def test_as_csv_and_json_with_exact_amounts() -> None:
    it = statement(RECORDS, OCTOBER, ["team", "queue"], OCTOBER.end_s)
    rows = list(csv.DictReader(io.StringIO(statement_csv(it))))
    assert sum(Decimal(row["usd"]) for row in rows) == Decimal("10.25")
    told = json.loads(statement_json(it))
    assert {row["team"]: float(row["usd"]) for row in rows} == {line["team"]: line["usd"] for line in told["lines"]}
    assert (told["month"], told["total"]["usd"], told["until"]) == ("2026-10", 10.25, "2026-11-01T00:00:00Z")


def test_as_a_page_that_needs_nothing_else() -> None:
    evil = "<script>alert(1)</script>"
    page = statement_html(statement([record("u", team=evil, price_source=evil)], OCTOBER, ["team"], OCTOBER.end_s))
    assert evil not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"(src|href|url)\s*[=(]", page)


# -- FOCUS ------------------------------------------------------------------------------------------------------------


def rows() -> Iterator[dict[str, str]]:
    more = [
        record("u", 9, capacity_type="spot", user="ada", devices="8 nvidia.com/gpu", usd_h=0.0, cost_micro_usd=0),
        record("u", 9, capacity_type="reserved", reservation="cr-1", gpu_s=0.0, cost_micro_usd=1),
    ]
    yield from map(dict, focus_rows([*RECORDS, *more], Seller("AWS", "Amazon EC2", "us-east-1")))


def test_all_columns_of_the_specification_are_there_and_no_others_but_ours() -> None:
    assert {name for name in FOCUS_COLUMNS if not name.startswith("x_")} == SPEC.keys()


@pytest.mark.parametrize("column", sorted(SPEC))
def test_every_value_is_what_the_specification_allows(column: str) -> None:
    said = SPEC[column]
    for row in rows():
        value = row[column]
        if not value:
            assert said["nullable"], f"{column} may not be null"
            continue
        if "values" in said:
            assert value in said["values"]
        match said.get("type"):
            case "decimal":
                assert re.fullmatch(r"-?\d+\.\d+", value)
            case "datetime":
                assert datetime.fromisoformat(value).tzinfo == UTC
            case "currency-code":
                assert value == "USD"
            case "stringified-json-object":
                assert isinstance(json.loads(value), dict)


def test_quantity_times_unit_price_is_the_cost() -> None:
    for row in rows():
        cost = float(row["PricingQuantity"]) * float(row["ListUnitPrice"])
        assert cost == pytest.approx(float(row["ListCost"]), abs=1e-6)
        assert row["ListCost"] == row["BilledCost"] == row["EffectiveCost"] == row["ContractedCost"]


def test_the_rows_are_the_bill() -> None:
    assert sum(Decimal(row["BilledCost"]) for row in rows()) == Decimal("10.250001")
