"""The ledger in S3: an object of Parquet for every cluster's hour, where pods come and go, and for many readers.

    <prefix>/records/cluster=<name>/day=<2026-10-01>/hour=<13>.parquet
    <prefix>/starts/cluster=<name>/day=<2026-10-01>/hour=<13>.parquet
    <prefix>/open/cluster=<name>.json

Objects are written once (`If-None-Match`), so that of two agents one writes an hour. What it did not see of that hour,
the other adds in an object beside it, whose name ends with a hash of what is in it. No object is ever changed but
that with the open hours, which is changed only by who has read it as it is (`If-Match`).
"""

import hashlib
import io
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from itertools import groupby
from typing import Any, Final, Generic, TypeVar, get_type_hints
from urllib.parse import quote, unquote

from fleet.cost.records import AHEAD_S, HOUR_S, LedgerRecord, StartRecord
from fleet.cost.sums import UsedHours, summed_record
from providers.store.port import LedgerError, OpenHours
from providers.store.queries import DAY_S, SUM_FIELDS, USED_FIELDS, sums_sql, used_on

OBJECT_MOST: Final = 256 * 2**20
"""Bytes of the largest object that is read."""
ATTEMPTS: Final = 5
_FOR_GOOD: Final = frozenset({"NoSuchBucket", "AccessDenied", "InvalidBucketName", "InvalidAccessKeyId", "403"})
_TAKEN: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_MISSING: Final = frozenset({"NoSuchKey", "404"})
_IN_PATH: Final = "cluster"
"""The column that stands in the path and not in the objects, as engines that read partitions want it."""
T = TypeVar("T", LedgerRecord, StartRecord)


@dataclass(frozen=True, slots=True)
class _Table(Generic[T]):
    """What is kept alike: records below one folder."""

    root: str
    kind: type[T]
    hour_of: Callable[[T], float]
    unit: Callable[[T], str]
    """What goes into an hour once, all or nothing."""
    order: Callable[[T], Any]

    @property
    def columns(self) -> list[str]:
        """Returns the names of the columns that stand in its objects."""
        return [field.name for field in fields(self.kind) if field.name != _IN_PATH]

    def of_cluster(self, cluster: str) -> str:
        """Returns the folder of a cluster."""
        return f"{self.root}cluster={quote(cluster, safe='')}/"

    def path(self, cluster: str, hour_s: float) -> str:
        """Returns how the names of an hour's objects begin."""
        return f"{self.of_cluster(cluster)}day={_day(hour_s)}/hour={datetime.fromtimestamp(hour_s, UTC):%H}"


class S3Ledger:
    """A ledger in a bucket. `client` is boto3's; its own retries are the only ones."""

    def __init__(self, client: Any, bucket: str, prefix: str = "") -> None:
        self._s3, self._bucket = client, bucket
        root = f"{prefix.strip('/')}/".lstrip("/")
        self._open = f"{root}open/"
        self._records: _Table[LedgerRecord] = _Table(
            f"{root}records/", LedgerRecord, lambda it: it.hour_s, lambda it: it.machine, lambda it: it.key
        )
        self._starts: _Table[StartRecord] = _Table(
            f"{root}starts/",
            StartRecord,
            lambda it: it.running_s // HOUR_S * HOUR_S,
            lambda it: f"{it.uid} {it.admitted_s}",
            lambda it: (it.cluster, it.running_s, it.uid),
        )

    def append(self, records: Sequence[LedgerRecord]) -> int:
        """Add the machines' hours that are not there yet, an object for each cluster's hour; returns how many records.

        Hours before one that fails stay written.
        """
        return self._append(self._records, records)

    def append_starts(self, starts: Sequence[StartRecord]) -> None:
        """Add starts of gangs; those that are there stay as they are."""
        self._append(self._starts, starts)

    def _append(self, table: _Table[T], rows: Sequence[T]) -> int:
        hours: dict[tuple[str, float], list[T]] = {}
        for row in rows:
            hours.setdefault((row.cluster, table.hour_of(row)), []).append(row)
        return sum(self._add_hour(table, *hour, hours[hour]) for hour in sorted(hours))

    def _add_hour(self, table: _Table[T], cluster: str, hour_s: float, rows: Sequence[T]) -> int:
        path = table.path(cluster, hour_s)
        if self._written(table, f"{path}.parquet", rows):
            return len(rows)
        for _ in range(ATTEMPTS):
            there = {table.unit(it) for key in self._keys(path) for it in self._read(table, key)}
            left = [it for it in rows if table.unit(it) not in there]
            if not left:
                return 0
            names = "\n".join(sorted({table.unit(it) for it in left}))
            digest = hashlib.sha256(names.encode()).hexdigest()[:16]
            if self._written(table, f"{path}-{digest}.parquet", left):
                return len(left)
        raise LedgerError(f"others keep writing s3://{self._bucket}/{path}")

    def _written(self, table: _Table[T], key: str, rows: Sequence[T]) -> bool:
        """Whether this call has made the object; not where there is one."""
        return self._put(key, _encoded(table, rows), {"IfNoneMatch": "*"})

    def _put(self, key: str, body: bytes, condition: dict[str, str]) -> bool:
        try:
            with _translated(self._bucket):
                self._s3.put_object(Bucket=self._bucket, Key=key, Body=body, **condition)
        except _RefusedByS3 as error:
            if error.code in _TAKEN:
                return False
            raise
        return True

    def read(self, begin_s: float, end_s: float, cluster: str = "") -> Iterator[LedgerRecord]:
        """Yield the records of hours that begin in that time, in order of key.

        Should two objects of an hour have the same machine, the first counts.
        """
        yield from self._rows(self._records, begin_s, end_s, cluster)

    def read_starts(self, begin_s: float, end_s: float, cluster: str = "") -> Iterator[StartRecord]:
        """Yield the starts of gangs that came to run in that time; of two of one start the earlier."""
        seen = set()
        for it in self._rows(self._starts, begin_s // HOUR_S * HOUR_S, end_s, cluster):
            if begin_s <= it.running_s < end_s and it.key not in seen:
                seen.add(it.key)
                yield it

    def _rows(self, table: _Table[T], begin_s: float, end_s: float, cluster: str) -> Iterator[T]:
        for name in [cluster] if cluster else self._clusters(table.root):
            for hour_s, keys in self._hours(table, name, begin_s, end_s):
                found: list[T] = []
                for key in keys:
                    known = {table.unit(it) for it in found}
                    found += [it for it in self._read(table, key) if table.unit(it) not in known]
                yield from sorted((it for it in found if table.hour_of(it) == hour_s), key=table.order)

    def _hours(
        self, table: _Table[T], cluster: str, begin_s: float, end_s: float
    ) -> Iterator[tuple[float, Sequence[str]]]:
        """Yields the hours that begin in that time, in order, each with its objects in order of name."""
        root = table.of_cluster(cluster)
        hours: dict[float, list[str]] = {}
        last = f"{root}day={_day(end_s)}~"
        for key in self._keys(root, after=f"{root}day={_day(begin_s)}"):
            if key > last:
                break
            hour_s = _hour_of(key)
            if hour_s is not None and begin_s <= hour_s < end_s:
                hours.setdefault(hour_s, []).append(key)
        for hour_s in sorted(hours):
            yield hour_s, sorted(hours[hour_s], key=lambda key: key.removesuffix(".parquet"))

    def _read(self, table: _Table[T], key: str) -> Sequence[T]:
        cluster = unquote(key.rpartition("/cluster=")[2].partition("/")[0])
        rows = self._table(key, table.columns).to_pylist()
        try:
            return [table.kind(cluster=cluster, **row) for row in rows]
        except (TypeError, ValueError) as error:
            raise LedgerError(f"s3://{self._bucket}/{key} is no part of a ledger: {error}", transient=False) from error

    def _get(self, key: str) -> tuple[bytes, str]:
        """The object and its tag, both empty where there is none."""
        try:
            with _translated(self._bucket):
                answer = self._s3.get_object(Bucket=self._bucket, Key=key)
                if answer["ContentLength"] > OBJECT_MOST:
                    raise LedgerError(f"s3://{self._bucket}/{key} is larger than {OBJECT_MOST} bytes", transient=False)
                return answer["Body"].read(), answer["ETag"]
        except _RefusedByS3 as error:
            if error.code in _MISSING:
                return b"", ""
            raise

    def newest_s(self, begin_s: float, end_s: float, cluster: str) -> float | None:
        """The last hour that has records of a cluster and begins in that time."""
        return max((hour_s for hour_s, _ in self._hours(self._records, cluster, begin_s, end_s)), default=None)

    def sums(self, begin_s: float, end_s: float, by: Sequence[str], cluster: str = "") -> Iterator[LedgerRecord]:
        """Yield the same records summed up by DuckDB, a day of a cluster at a time."""
        query = sums_sql(by, _DAY)
        for name, engine in self._days(begin_s, end_s, cluster, (*SUM_FIELDS, *by)):
            yield from (summed_record(by, (name, *row)) for row in engine.execute(query).fetchall())

    def used_hours(self, begin_s: float, end_s: float, cluster: str = "") -> Iterator[UsedHours]:
        """Yield what machines were used for in that time, a day of a cluster at a time."""
        for _, engine in self._days(begin_s, end_s, cluster, USED_FIELDS):
            yield from used_on(partial(_asked, engine), _DAY, "any_value({})")

    def _days(self, begin_s: float, end_s: float, cluster: str, columns: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Yields a cluster, and an engine that has these columns of a day of it in its table `objects`, each day."""
        with closing(_engine()) as engine:
            for name in [cluster] if cluster else self._clusters(self._records.root):
                hours = self._hours(self._records, name, begin_s, end_s)
                for _, day in groupby(hours, key=lambda it: it[0] // DAY_S):
                    engine.register("objects", self._day(name, list(day), columns))
                    yield name, engine
                    engine.unregister("objects")

    def _day(self, cluster: str, hours: Sequence[tuple[float, Sequence[str]]], columns: Sequence[str]) -> Any:
        """Returns the hours' rows as one table; of a machine's hour that two objects have, the first counts."""
        import pyarrow as pa
        import pyarrow.compute as pc

        tables = []
        for _, keys in hours:
            seen = None
            for key in keys:
                several = len(keys) > 1
                table = self._table(key, (*columns, "machine") if several else columns)
                if several:
                    machines = table["machine"].combine_chunks()
                    if seen is not None:
                        table = table.filter(pc.invert(pc.is_in(table["machine"], value_set=seen)))
                    seen = machines if seen is None else pa.concat_arrays([seen, machines])
                    table = table.select([name for name in dict.fromkeys(columns) if name != _IN_PATH])
                tables.append(table)
        found = pa.concat_tables(tables)
        return found.append_column(_IN_PATH, pa.array([cluster], pa.string()).take(pa.array([0] * found.num_rows)))

    def _table(self, key: str, columns: Sequence[str]) -> Any:
        """Returns columns of an object. Errors: LedgerError."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        body, _ = self._get(key)
        try:
            return pq.read_table(io.BytesIO(body), columns=[it for it in dict.fromkeys(columns) if it != _IN_PATH])
        except (pa.ArrowException, ValueError) as error:
            raise LedgerError(f"s3://{self._bucket}/{key} is no part of a ledger: {error}", transient=False) from error

    def keep_open(self, cluster: str, hours: OpenHours) -> None:
        """Keep what is not in the ledger yet; a little older than what is kept, it is dropped."""
        key = f"{self._open}cluster={quote(cluster, safe='')}.json"
        body = json.dumps({"untilS": hours.until_s, "body": b64encode(hours.body).decode()}).encode()
        for _ in range(ATTEMPTS):
            held, tag = self._get(key)
            if held and 0 < _opened(held).until_s - hours.until_s <= AHEAD_S:
                return
            if self._put(key, body, {"IfMatch": tag} if tag else {"IfNoneMatch": "*"}):
                return
        raise LedgerError(f"others keep writing s3://{self._bucket}/{key}")

    def open_hours(self, cluster: str) -> OpenHours | None:
        """What was kept last."""
        held, _ = self._get(f"{self._open}cluster={quote(cluster, safe='')}.json")
        return _opened(held) if held else None

    def clusters(self) -> Sequence[str]:
        """The names of all clusters that have written here."""
        return sorted({*self._clusters(self._records.root), *self._clusters(self._open)})

    def _clusters(self, root: str) -> Sequence[str]:
        names: set[str] = set()
        with _translated(self._bucket):
            for page in self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{root}cluster=", Delimiter="/"
            ):
                found = [it["Prefix"] for it in page.get("CommonPrefixes", ())]
                found += [it["Key"] for it in page.get("Contents", ())]
                names |= {it.removeprefix(f"{root}cluster=").rstrip("/").removesuffix(".json") for it in found}
        return sorted(map(unquote, names))

    def _keys(self, prefix: str, after: str = "") -> Iterator[str]:
        with _translated(self._bucket):
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix, StartAfter=after
            )
            for page in pages:
                yield from (it["Key"] for it in page.get("Contents", ()))

    def forget_before(self, at_s: float) -> None:
        """Forget records of hours that began earlier, and earlier starts."""
        self._forget(self._records, at_s)
        self._forget(self._starts, at_s)

    def _forget(self, table: _Table[T], at_s: float) -> None:
        for cluster in self._clusters(table.root):
            keys = [key for _, held in self._hours(table, cluster, 0.0, at_s) for key in held]
            for n in range(0, len(keys), 1000):
                with _translated(self._bucket):
                    self._s3.delete_objects(
                        Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in keys[n : n + 1000]]}
                    )

    def close(self) -> None:
        """Close its connections."""
        self._s3.close()


_DAY: Final = "FROM objects WHERE true"


def _engine() -> Any:
    """DuckDB in memory, that reads what it is handed and nothing else."""
    import duckdb

    return duckdb.connect(config={"enable_external_access": False, "memory_limit": "512MB", "threads": 1})


def _asked(engine: Any, query: str) -> Iterator[list[Any]]:
    """Yields the rows that answer a question, with sums of whole numbers as such."""
    for row in engine.execute(query).fetchall():
        yield [int(it) if isinstance(it, Decimal) else it for it in row]


def s3_ledger(bucket: str, prefix: str, region: str, endpoint_url: str) -> S3Ledger:
    """The ledger of a bucket, with credentials from the usual chain; raises `LedgerError` without the extra."""
    from importlib.util import find_spec

    if find_spec("pyarrow") is None or find_spec("duckdb") is None:
        raise LedgerError("a ledger in S3 needs the extra: pip install 'muster[ledger-s3]'", transient=False)
    import boto3
    from botocore.config import Config

    config = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 4})
    client = boto3.client("s3", region_name=region or None, endpoint_url=endpoint_url or None, config=config)
    return S3Ledger(client, bucket, prefix)


def _day(at_s: float) -> str:
    return f"{datetime.fromtimestamp(min(at_s, 253_000_000_000.0), UTC):%Y-%m-%d}"


def _hour_of(key: str) -> float | None:
    """The hour that an object's name says; None for an object of somebody else."""
    day, _, name = key.rpartition("/day=")[2].partition("/hour=")
    try:
        return datetime.fromisoformat(f"{day}T{name[:2]}:00:00+00:00").timestamp()
    except ValueError:
        return None


def _encoded(table: _Table[T], rows: Sequence[T]) -> bytes:
    """The rows as Parquet, sorted; `hour` is the begin of their hour as a time, for engines."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types: dict[type, Any] = {str: pa.string(), float: pa.float64(), int: pa.int64(), bool: pa.bool_()}
    said: dict[str, Any] = get_type_hints(table.kind)
    schema = pa.schema([*((name, types[said[name]]) for name in table.columns), ("hour", pa.timestamp("ms", tz="UTC"))])
    ordered = sorted(rows, key=table.order)
    values = {name: [getattr(it, name) for it in ordered] for name in table.columns}
    hours = [datetime.fromtimestamp(table.hour_of(it), UTC) for it in ordered]
    told = io.BytesIO()
    pq.write_table(pa.table({**values, "hour": hours}, schema=schema), told, compression="zstd")
    return told.getvalue()


def _opened(held: bytes) -> OpenHours:
    try:
        said = json.loads(held)
        return OpenHours(float(said["untilS"]), b64decode(said["body"]))
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"the open hours cannot be read: {error!r}", transient=False) from error


class _RefusedByS3(LedgerError):
    """S3 answered with an error; `code` is its own."""

    def __init__(self, words: str, code: str) -> None:
        super().__init__(words, transient=code not in _FOR_GOOD)
        self.code = code


@contextmanager
def _translated(bucket: str) -> Iterator[None]:
    """Errors of boto3 as the port's."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        raise _RefusedByS3(f"s3://{bucket}: {error}", code) from error
    except BotoCoreError as error:
        raise LedgerError(f"s3://{bucket}: {error}") from error
