"""The async sink: events and notifications go out when there is time, in bounded number; nobody waits for them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

log = structlog.get_logger(__name__)


class AsyncSink:
    """Two threads and at most `most` things waiting; `on_drop` hears of what comes beyond that and what fails."""

    def __init__(self, on_drop: Callable[[], object], most: int = 1000) -> None:
        self._room = threading.BoundedSemaphore(most)
        self._executor = ThreadPoolExecutor(2, thread_name_prefix="sink")
        self._on_drop = on_drop

    def send(self, what: Callable[..., object], *arguments: Any) -> None:
        """Do it some time soon; never raises, never waits."""
        if not self._room.acquire(blocking=False):
            self._on_drop()
            return

        def run() -> None:
            try:
                what(*arguments)
            except Exception as error:  # noqa: BLE001 - the edge of the sink: news is never worth a failure
                self._on_drop()
                log.info("not_sent", why=f"{type(error).__name__}: {error}")
            finally:
                self._room.release()

        self._executor.submit(run)

    def close(self) -> None:
        """Finish what is being sent, drop the rest."""
        self._executor.shutdown(wait=True, cancel_futures=True)
