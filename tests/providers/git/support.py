"""A work tree driven by the git command line, and a git server on loopback."""

import contextlib
import http.server
import os
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    "TZ": "UTC",
}
MAIN = "refs/heads/main"
# git's clock for every commit of a test, so that oids do not depend on the time of day.
EPOCH_S = 1_700_000_000


@dataclass
class WorkTree:
    """A work tree that tests push to, commit in and rewrite; every commit is a second after the one before."""

    path: Path
    seconds: int = field(default=EPOCH_S)

    def git(self, *arguments: str, stdin: bytes | None = None, **environment: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env={**ENVIRONMENT, **environment},
            input=stdin,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout.decode(errors="replace").strip()

    def write(self, name: str, text: str) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self, name: str = "a.yaml", text: str | None = None, *flags: str) -> str:
        self.seconds += 1
        self.write(name, f"n: {self.seconds}\n" if text is None else text)
        return self.commit_all(*flags)

    def commit_all(self, *flags: str) -> str:
        date = f"{self.seconds} +0000"
        self.git("add", "--all")
        self.git("commit", "-q", "-m", "change", *flags, GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)
        return self.head()

    def head(self, revision: str = "HEAD") -> str:
        return self.git("rev-parse", "--verify", revision)


class SmartHttp(http.server.BaseHTTPRequestHandler):
    """A git server: `git http-backend` behind the standard library. `server.rules` may answer instead."""

    protocol_version = "HTTP/1.1"
    server: "GitHttpServer"

    def log_message(self, *_arguments: object) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        self._answer(b"")

    def do_CONNECT(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(body)

    def _answer(self, body: bytes) -> None:
        self.server.seen.append((self.path, dict(self.headers.items())))
        for rule in self.server.rules:
            if rule(self):
                return
        path, _, query = self.path.partition("?")
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            capture_output=True,
            check=False,
            env={
                **ENVIRONMENT,
                "GIT_PROJECT_ROOT": str(self.server.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            },
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.reply(int(fields.pop("Status", "200 OK")[:3]), fields, content)

    def reply(self, status: int, fields: dict[str, str], content: bytes = b"") -> bool:
        """Answer, and say so: a rule may end with it."""
        if self.command == "POST" and status == 200:
            content = self.server.spoil(content)
        self.send_response(status)
        for name, value in {**fields, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        if self.server.closes:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(content)
        return True


Rule = Callable[[SmartHttp], bool]


class GitHttpServer(http.server.ThreadingHTTPServer):
    """Serves the repositories below `root` on loopback; `seen` is every request with its headers."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), SmartHttp)
        self.root = root
        self.rules: list[Rule] = []
        self.closes = False
        self.spoil: Callable[[bytes], bytes] = lambda content: content
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.stopping = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"
