"""The ledger in S3: an object of Parquet for every cluster's hour, where pods come and go, and for many readers.

    <prefix>/records/cluster=<name>/day=<2026-10-01>/hour=<13>.parquet
    <prefix>/open/cluster=<name>.json

Objects are written once (`If-None-Match`), so that of two agents one writes an hour. What it did not see of that hour,
the other adds in an object beside it, whose name ends with a hash of the machines in it. No object is ever changed but
that with the open hours, which is changed only by who has read it as it is (`If-Match`).
"""

import hashlib
import io
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from fleet.cost.records import LedgerRecord, by_machine_hour
from providers.ports import LedgerError, OpenHours

OBJECT_MOST: Final = 256 * 2**20
"""Bytes of the largest object that is read."""
ATTEMPTS: Final = 5
_FOR_GOOD: Final = frozenset({"NoSuchBucket", "AccessDenied", "InvalidBucketName", "InvalidAccessKeyId", "403"})
_TAKEN: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_MISSING: Final = frozenset({"NoSuchKey", "404"})
_IN_PATH: Final = "cluster"
"""The column that stands in the path and not in the objects, as engines that read partitions want it."""
_COLUMNS: Final = tuple(field.name for field in fields(LedgerRecord) if field.name != _IN_PATH)


class S3Ledger:
    """A ledger in a bucket. `client` is boto3's; its own retries are the only ones."""

    def __init__(self, client: Any, bucket: str, prefix: str = "") -> None:
        self._s3, self._bucket = client, bucket
        self._records, self._open = (f"{prefix.strip('/')}/{it}/".lstrip("/") for it in ("records", "open"))

    def append(self, records: Sequence[LedgerRecord]) -> int:
        """Add the machines' hours that are not there yet, an object for each cluster's hour; returns how many records.

        Hours before one that fails stay written.
        """
        hours: dict[tuple[str, float], list[LedgerRecord]] = {}
        for record in records:
            hours.setdefault((record.cluster, record.hour_s), []).append(record)
        return sum(self._append(cluster, hour_s, hours[cluster, hour_s]) for cluster, hour_s in sorted(hours))

    def _append(self, cluster: str, hour_s: float, records: Sequence[LedgerRecord]) -> int:
        path = self._path(cluster, hour_s)
        if self._written(f"{path}.parquet", records):
            return len(records)
        for _ in range(ATTEMPTS):
            there = {it.machine for key in self._keys(path) for it in self._read(key)}
            left = [it for it in records if it.machine not in there]
            if not left:
                return 0
            names = "\n".join(sorted({it.machine for it in left}))
            if self._written(f"{path}-{hashlib.sha256(names.encode()).hexdigest()[:16]}.parquet", left):
                return len(left)
        raise LedgerError(f"others keep writing s3://{self._bucket}/{path}")

    def _written(self, key: str, records: Sequence[LedgerRecord]) -> bool:
        """Whether this call has made the object; not where there is one."""
        return self._put(key, _encoded(records), {"IfNoneMatch": "*"})

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
        for name in [cluster] if cluster else self._clusters(self._records):
            for hour_s, keys in self._hours(name, begin_s, end_s):
                found: list[LedgerRecord] = []
                for key in keys:
                    known = {it.machine for it in found}
                    found += [it for it in self._read(key) if it.machine not in known]
                yield from sorted((it for it in found if it.hour_s == hour_s), key=lambda it: it.key)

    def _hours(self, cluster: str, begin_s: float, end_s: float) -> Iterator[tuple[float, Sequence[str]]]:
        """Yields the hours that begin in that time, in order, each with its objects in order of name."""
        root = f"{self._records}cluster={quote(cluster, safe='')}/"
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

    def _read(self, key: str) -> Sequence[LedgerRecord]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        body, _ = self._get(key)
        cluster = unquote(key.rpartition("/cluster=")[2].partition("/")[0])
        try:
            rows = pq.read_table(io.BytesIO(body), columns=list(_COLUMNS)).to_pylist()
            return [LedgerRecord(cluster=cluster, **row) for row in rows]
        except (pa.ArrowException, TypeError, ValueError) as error:
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

    def keep_open(self, cluster: str, hours: OpenHours) -> None:
        """Keep what is not in the ledger yet; older than what is kept, it is dropped."""
        key = f"{self._open}cluster={quote(cluster, safe='')}.json"
        body = json.dumps({"untilS": hours.until_s, "body": b64encode(hours.body).decode()}).encode()
        for _ in range(ATTEMPTS):
            held, tag = self._get(key)
            if held and _opened(held).until_s > hours.until_s:
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
        return sorted({*self._clusters(self._records), *self._clusters(self._open)})

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
        """Forget records of hours that began earlier."""
        for cluster in self._clusters(self._records):
            keys = [key for _, held in self._hours(cluster, 0.0, at_s) for key in held]
            for n in range(0, len(keys), 1000):
                with _translated(self._bucket):
                    self._s3.delete_objects(
                        Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in keys[n : n + 1000]]}
                    )

    def close(self) -> None:
        """Close its connections."""
        self._s3.close()

    def _path(self, cluster: str, hour_s: float) -> str:
        at = datetime.fromtimestamp(hour_s, UTC)
        return f"{self._records}cluster={quote(cluster, safe='')}/day={_day(hour_s)}/hour={at:%H}"


def s3_ledger(bucket: str, prefix: str, region: str, endpoint_url: str) -> S3Ledger:
    """The ledger of a bucket, with credentials from the usual chain; raises `LedgerError` without the extra."""
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
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


def _encoded(records: Sequence[LedgerRecord]) -> bytes:
    """The records as Parquet, sorted; `hour` is `hour_s` as a time, for engines."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [asdict(it) for group in by_machine_hour(sorted(records, key=lambda it: it.key)).values() for it in group]
    arrays = {name: [row[name] for row in rows] for name in _COLUMNS}
    hours = [datetime.fromtimestamp(row["hour_s"], UTC) for row in rows]
    schema = _schema(pa)
    table = pa.table({**arrays, "hour": hours}, schema=schema)
    told = io.BytesIO()
    pq.write_table(table, told, compression="zstd")
    return told.getvalue()


def _schema(pa: Any) -> Any:
    types = {str: pa.string(), float: pa.float64(), int: pa.int64(), bool: pa.bool_()}
    columns = [(field.name, types[field.type]) for field in fields(LedgerRecord) if field.name != _IN_PATH]  # type: ignore[index]
    return pa.schema([*columns, ("hour", pa.timestamp("ms", tz="UTC"))])


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
