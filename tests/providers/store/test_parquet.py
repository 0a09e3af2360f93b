"""The ledger in S3 (moto): the contract, and what is its own: two writers at once, refusals, engines that read."""

import io
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

import boto3
import pyarrow.parquet as pq
from moto import mock_aws

from fleet.cost.machine_use import IDLE
from providers.store.parquet import S3Ledger
from providers.store.port import Ledger, LedgerError, OpenHours
from tests.providers.store.contract import H0, LedgerContract, record

BUCKET = "costs"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        yield client


def keys(s3: Any) -> list[str]:
    return [it["Key"] for it in s3.list_objects_v2(Bucket=BUCKET).get("Contents", ())]


class TestS3Ledger(LedgerContract):
    @pytest.fixture
    def ledger(self, s3: Any) -> Ledger:
        return S3Ledger(s3, BUCKET, "/some/prefix/")

    def test_an_hour_is_an_object_and_what_comes_later_stands_beside_it(self, s3: Any, ledger: Ledger) -> None:
        ledger.append([record("i-0"), record("i-1")])
        ledger.append([record("i-1"), record("i-2")])
        ledger.append([record("i-2")])
        names = [key.removeprefix("some/prefix/records/cluster=c/day=2026-10-03/") for key in keys(s3)]
        assert names[1] == "hour=04.parquet"
        assert names[0].startswith("hour=04-")
        assert len(names) == 2

    def test_the_same_records_are_the_same_bytes(self, s3: Any, ledger: Ledger) -> None:
        records = [record(f"i-{n}", subject=name) for n in range(3) for name in (IDLE, "a")]
        ledger.append(records)
        S3Ledger(s3, BUCKET, "again").append(records[::-1])
        bodies = {s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys(s3)}
        assert len(bodies) == 1

    def test_of_an_object_twice_the_first_counts(self, s3: Any, ledger: Ledger) -> None:
        """Two who add different machines at one moment may both have seen one: readers take the first."""
        ledger.append([record("i-0", cost_micro_usd=5)])
        (key,) = keys(s3)
        s3.copy_object(
            Bucket=BUCKET, Key=key.replace(".parquet", "-zz.parquet"), CopySource={"Bucket": BUCKET, "Key": key}
        )
        assert [it.cost_micro_usd for it in self.held(ledger)] == [5]
        assert [it.cost_micro_usd for it in ledger.sums(0, 2 * H0, ())] == [5]

    def test_objects_of_others_are_left_alone(self, s3: Any, ledger: Ledger) -> None:
        ledger.append([record(hour=-48)])
        s3.put_object(Bucket=BUCKET, Key="some/prefix/records/cluster=c/README", Body=b"x")
        s3.put_object(Bucket=BUCKET, Key="some/prefix/records/cluster=c/day=x/hour=y", Body=b"x")
        assert len(self.held(ledger)) == 1
        ledger.forget_before(H0)
        assert len(keys(s3)) == 2


class Between:
    """A client between whose reading and writing somebody else writes."""

    def __init__(self, s3: Any, act: Any) -> None:
        self._s3, self._act = s3, act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._s3, name)

    def put_object(self, **what: Any) -> Any:
        act, self._act = self._act, lambda: None
        act()
        return self._s3.put_object(**what)


def test_two_who_write_an_hour_at_once_write_it_once(s3: Any) -> None:
    other = S3Ledger(s3, BUCKET)
    late = S3Ledger(Between(s3, lambda: other.append([record("i-0", cost_micro_usd=1)])), BUCKET)
    assert late.append([record("i-0", cost_micro_usd=2), record("i-1", cost_micro_usd=4)]) == 1
    assert sum(it.cost_micro_usd for it in other.read(0, 2 * H0)) == 5


def test_open_hours_of_two_keep_the_newer(s3: Any) -> None:
    other = S3Ledger(s3, BUCKET)
    other.keep_open("c", OpenHours(1.0, b"old"))
    late = S3Ledger(Between(s3, lambda: other.keep_open("c", OpenHours(9.0, b"newer"))), BUCKET)
    late.keep_open("c", OpenHours(5.0, b"late"))
    assert other.open_hours("c") == OpenHours(9.0, b"newer")


def test_a_bucket_that_is_not_there_stays_so_for_now(s3: Any) -> None:
    ledger = S3Ledger(s3, "elsewhere")
    for call in (lambda: ledger.append([record()]), lambda: ledger.open_hours("c"), ledger.clusters):
        with pytest.raises(LedgerError, match="s3://elsewhere") as caught:
            call()
        assert not caught.value.transient


def test_what_is_no_parquet_is_told_of(s3: Any) -> None:
    ledger = S3Ledger(s3, BUCKET)
    ledger.append([record()])
    (key,) = keys(s3)
    s3.put_object(Bucket=BUCKET, Key=key, Body=b"no parquet")
    with pytest.raises(LedgerError, match="is no part of a ledger"):
        list(ledger.read(0, 2 * H0))


def test_what_engines_read(s3: Any) -> None:
    """Columns and types of an object: what the tables in docs/guides/cost.md declare."""
    S3Ledger(s3, BUCKET).append([record()])
    (key,) = keys(s3)
    schema = pq.read_schema(io.BytesIO(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()))
    types: Mapping[str, str] = {name: str(schema.field(name).type) for name in schema.names}
    assert "cluster" not in types
    assert types["hour"] == "timestamp[ms, tz=UTC]"
    assert (types["cost_micro_usd"], types["borrowed"], types["gpu_s"], types["team"]) == (
        "int64",
        "bool",
        "double",
        "string",
    )


def test_duckdb_reads_all_clusters_at_once(s3: Any, tmp_path: Any) -> None:
    import duckdb

    ledger = S3Ledger(s3, BUCKET)
    ledger.append(
        [record(f"i-{n}", hour, cluster=c, cost_micro_usd=10**6) for n in range(2) for hour in range(3) for c in "ab"]
    )
    for key in keys(s3):
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    found = duckdb.sql(
        "SELECT cluster, sum(cost_micro_usd) / 1e6 AS usd "
        f"FROM read_parquet('{tmp_path}/records/*/*/*.parquet', hive_partitioning = true) GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    assert found == [("a", 6.0), ("b", 6.0)]
