"""What the agent itself knows of a repository and believes of nobody else: the revision in force, and first sights.

A file beside the mirror, replaced atomically. A file that cannot be read counts as none: the agent then knows nothing.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from providers.git.messages import Tip

_log = structlog.get_logger(__name__)
_MOST_SEEN = 4_096
_MAX_BYTES = 4 * 1024 * 1024


class _Kept(msgspec.Struct):
    """The file: the revision in force, and when each commit or tag was first seen (UTC seconds)."""

    in_force: Tip | None = None
    seen: dict[str, float] = {}


class SourceRecord:
    """The record of one repository. Safe to use from several threads."""

    def __init__(self, path: Path, now_s: Callable[[], float]) -> None:
        self._path = path
        self._now_s = now_s
        self._lock = threading.Lock()
        self._kept = _read(path)

    @property
    def in_force(self) -> Tip | None:
        """The revision that this agent, or an earlier process of it, brought into force last."""
        return self._kept.in_force

    def first_seen(self, oid: str) -> float:
        """When this object was seen first; now, if never before."""
        with self._lock:
            if oid not in self._kept.seen:
                self._kept.seen[oid] = self._now_s()
                self._forget_old()
                self._write()
            return self._kept.seen[oid]

    def bring_into_force(self, tip: Tip) -> None:
        """Note that `tip` is in force now."""
        with self._lock:
            if self._kept.in_force != tip:
                self._kept.in_force = tip
                self._write()

    def _forget_old(self) -> None:
        spared = {self._kept.in_force.oid, self._kept.in_force.raw} if self._kept.in_force else set()
        while len(self._kept.seen) > _MOST_SEEN:
            del self._kept.seen[next(oid for oid in self._kept.seen if oid not in spared)]

    def _write(self) -> None:
        """A full disk must not keep back a revision that was read; the next process will know less."""
        fresh = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh.write_bytes(msgspec.json.encode(self._kept))
            fresh.replace(self._path)
        except OSError as error:
            _log.warning("git.source.not_remembered", path=str(self._path), error=error.strerror)


def _read(path: Path) -> _Kept:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_BYTES), type=_Kept)
    except FileNotFoundError:
        return _Kept()
    except (OSError, msgspec.DecodeError) as error:
        _log.warning("git.source.record_unreadable", path=str(path), error=str(error))
        return _Kept()
