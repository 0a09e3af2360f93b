"""libgit2's process-wide settings, made safe: time-outs on, the user's configuration and keys out of reach.

libgit2 waits for ever by default, reads `~/.gitconfig` (an `insteadOf` there redirects a fetch) and takes host keys
from the user's home. All of these are globals of the process, so one lock orders the network operations of
sources that may need them to differ; reading a repository takes no lock.
"""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pygit2
from pygit2.enums import ConfigLevel

_NOWHERE = "/nonexistent"
_LOCK = threading.RLock()
# Far above any fleet repository; a pack that claims more objects is an attack on our memory.
_MAX_OBJECTS = 2_000_000
_WINDOW = 16 * 1024 * 1024


@dataclass(frozen=True)
class NetworkSettings:
    """What one network operation needs of the process. Times in seconds; `home` holds `.ssh/known_hosts`."""

    connect_timeout_s: float
    read_timeout_s: float
    home: Path
    ca_file: Path | None = None


@functools.cache
def isolate() -> None:
    """Cut libgit2 off from configuration outside the repository.

    Once per process: the paths are C globals that another thread may be reading while it opens a repository.
    """
    for level in (ConfigLevel.GLOBAL, ConfigLevel.XDG, ConfigLevel.SYSTEM):
        pygit2.settings.search_path[level] = _NOWHERE
    pygit2.settings.pack_max_objects = _MAX_OBJECTS
    # The address space of the process that reads is bounded, and libgit2 would map whole gigabytes of a pack at once.
    pygit2.settings.mwindow_size = _WINDOW
    pygit2.settings.mwindow_mapped_limit = 8 * _WINDOW


@contextmanager
def network(settings: NetworkSettings) -> Iterator[None]:
    """Run one network operation under `settings`; operations of several sources in one process take turns.

    Both time-outs are set: with the connect time-out alone libgit2 leaves the socket non-blocking and fails at once.
    """
    isolate()
    with _LOCK:
        pygit2.settings.server_connect_timeout = max(1, round(settings.connect_timeout_s * 1000))
        pygit2.settings.server_timeout = max(1, round(settings.read_timeout_s * 1000))
        pygit2.settings.homedir = str(settings.home)
        if settings.ca_file is not None:
            pygit2.settings.set_ssl_cert_locations(str(settings.ca_file), None)
        yield


@functools.cache
def trust_any_owner() -> None:
    """Switch libgit2's owner check off, for good; `opening.check_owner` goes on refusing for those who did not ask."""
    pygit2.settings.owner_validation = False
