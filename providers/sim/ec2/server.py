"""`FakeAws`: EC2, SQS, SSM, IAM and STS over real HTTP on loopback, with an EC2 that can refuse.

moto answers what it answers well; EC2's machines and money are `operations` on an `Account`. Every `FakeAws` is an AWS
account of its own inside moto, so that several in one process never see each other.
"""

import itertools
import re
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from moto.core.request import Request
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler
from werkzeug.wrappers import Response

from providers.clock import Clock, VirtualClock
from providers.sim.ec2 import eventbridge
from providers.sim.ec2.account import Account, ConnectionLost
from providers.sim.ec2.control import PREFIX, Control
from providers.sim.ec2.fleets import Fleets
from providers.sim.ec2.market import RegionMarket
from providers.sim.ec2.operations import Ec2Operations, SsmOperations
from providers.sim.ec2.site import QUEUE_NAME, Site, vcpus
from providers.sim.machines import LedgerEntry, MachineTimings, SimulatedMachine

_ACCOUNTS = itertools.count(700_000_000_001)
_SCOPE = re.compile(r"Credential=[^/]*/\d+/[^/]*/(?P<service>[^/]+)/aws4_request")


class _MotoRequest(Request):  # type: ignore[misc]
    from_wsgi_server = True


class _Handler(WSGIRequestHandler):  # type: ignore[misc]
    """Keeps connections open between requests, as AWS does, and breaks them when the fake says so."""

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """A connection has come: it may be cut by its server."""
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        """The connection has ended."""
        self.server.connections.discard(self.connection)
        super().finish()

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
        """The caller has gone: nothing to tell of."""
        del error, environ
        self.close_connection = True

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - werkzeug's name
        """Say nothing: the agent's own log tells what it asked for."""


class _Server(ThreadedWSGIServer):  # type: ignore[misc]
    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int, app: Any) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__("127.0.0.1", port, app, handler=_Handler)

    def close(self) -> None:
        """Stop and hang up on everyone, so that no client goes on talking to a stopped server."""
        self.shutdown()
        self.server_close()
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class FakeAws:
    """An AWS account on loopback; a context manager. `port` 0 takes any free one.

    Under a real clock a thread lets machines start, end and be interrupted on time; under a `VirtualClock` the caller
    does so with `step` (SQS alone keeps real time: visibility time-outs and long polls).
    Implements `Machines` for node registration.
    """

    def __init__(
        self,
        market: RegionMarket,
        clock: Clock,
        *,
        region: str = "us-east-1",
        port: int = 0,
        cluster: str = "default",
        timings: MachineTimings | None = None,
    ) -> None:
        account_id = str(next(_ACCOUNTS))
        self.name = "fake-aws"
        self.market = market
        self.region = region
        self.account = Account(
            market, clock, region=region, account_id=account_id, salt=str(clock.now()), timings=timings
        )
        self.site = Site(account_id, region, cluster)
        market.know_vcpus(vcpus())
        self._clock = clock
        self._fleets = Fleets()
        self._control = Control(self.account)
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = _Server(port, self._app)
        self._ticker = None if isinstance(clock, VirtualClock) else _Ticker(self.account, clock)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="fake-aws", daemon=True)
        self.account.on_signal(
            lambda signal: self.site.send(eventbridge.body(signal, account_id=account_id, region=region))
        )

    @property
    def url(self) -> str:
        """The endpoint for every AWS client."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def queue_url(self) -> str:
        """The interruption queue."""
        return f"{self.url}/{self.account.account_id}/{QUEUE_NAME}"

    def also(self, name: str, act: Callable[[Mapping[str, Any]], Any]) -> None:
        """Let another part of the simulation answer the control route `POST <name>`."""
        self._control.also(name, act)

    def start(self) -> Self:
        """Begin to serve; returns itself."""
        self._thread.start()
        if self._ticker is not None:
            self._ticker.start()
        return self

    def stop(self) -> None:
        """End all threads and connections; machines are forgotten."""
        if self._ticker is not None:
            self._ticker.stop()
        if self._thread.is_alive():
            self._server.close()
            self._thread.join(5.0)
        else:
            self._server.server_close()
        self.site.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    # The fake's controls

    def interrupt(self, instance_id: str, notice_s: float = 120.0) -> None:
        """Take a spot or reserved machine back: a message on the queue now, the end `notice_s` later."""
        self.account.interrupt(instance_id, notice_s)

    def rebalance(self, instance_id: str) -> None:
        """Put a rebalance recommendation on the queue."""
        self.account.rebalance(instance_id)

    def schedule_change(self, instance_id: str) -> None:
        """Put an AWS Health event (host retirement) on the queue."""
        self.account.schedule_change(instance_id)

    def kill(self, instance_id: str) -> None:
        """Let a machine die at once."""
        self.account.kill(instance_id)

    def instances(self) -> Sequence[SimulatedMachine]:
        """Every machine still listed."""
        return self.account.machines()

    def ledger(self) -> Sequence[LedgerEntry]:
        """Every machine ever bought: the truth about money."""
        return self.account.ledger()

    def boot_delay_s(self, machine: SimulatedMachine) -> float | None:
        """Seconds from its launch until a machine's kubelet registers; None for never."""
        return self.account.boot_delay_s(machine)

    def list(self) -> Sequence[SimulatedMachine]:
        """The same as `instances`, for node registration."""
        return self.account.machines()

    def step(self, now: float) -> float | None:
        """Do all that is due at `now`; the next instant something is, or None."""
        return self.account.step(now)

    # HTTP

    def _app(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            answer: Iterable[bytes] = self._route(environ)(environ, start_response)
        except ConnectionLost as lost:
            raise ConnectionResetError(str(lost)) from lost
        return answer

    def _route(self, environ: dict[str, Any]) -> Any:
        """Who answers; a WSGI application."""
        path = environ.get("PATH_INFO", "")
        environ["HTTP_X_MOTO_ACCOUNT_ID"] = self.account.account_id
        scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
        service = scope["service"] if scope else ""
        if path.startswith(PREFIX):
            return self._controlled(environ, path)
        if service == "ec2":
            return self._answer(environ, Ec2Operations(self.account, self.site, self._fleets))
        if service == "ssm":
            return self._answer(environ, SsmOperations())
        if path.startswith("/moto-api"):
            return Response("this would reset every fake in the process", 404)
        return self._moto

    def _answer(self, environ: dict[str, Any], operations: Any) -> Response:
        request = _MotoRequest(environ)
        status, headers, body = operations._dispatch(request, request.raw_url, dict(request.headers))  # noqa: SLF001 - moto's entry
        return Response(body, status=int(headers.pop("status", status)), headers=headers)

    def _controlled(self, environ: dict[str, Any], path: str) -> Response:
        request = _MotoRequest(environ)
        status, body = self._control.handle(request.method, path, request.content_type or "", request.get_data())
        return Response(body, status=status, content_type="application/json")


class _Ticker:
    """Steps an account in real time: sleeps until the next thing is due or something new is."""

    def __init__(self, account: Account, clock: Clock) -> None:
        self._account = account
        self._clock = clock
        self._news = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="fake-aws-ticker", daemon=True)
        account.on_agenda(self._news.set)

    def start(self) -> None:
        """Begin to step the account."""
        self._thread.start()

    def stop(self) -> None:
        """Step it no more; returns when the thread has ended."""
        self._stopping = True
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stopping:
            self._news.clear()
            due_s = self._account.step(self._clock.now())
            self._news.wait(None if due_s is None else max(0.0, due_s - self._clock.now()))
