"""A real Prometheus scrapes the sandbox, and has an answer to every query of every dashboard."""

import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from agent.demo.jobs import job
from agent.sandbox.command import free_port
from tests.e2e.test_sandbox import Sandbox
from tools import alerts, dashboards

WITHIN_S = 120.0


def prometheus() -> str:
    found = shutil.which("prometheus")
    if found is None:
        missing = "there is no prometheus here (Debian: apt-get install prometheus)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


class Scraper:
    """A Prometheus with the agent's rules that looks every second."""

    def __init__(self, program: str, folder: Path, target: str) -> None:
        folder.mkdir()
        (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": alerts.groups()}), "utf-8")
        scraped = [{"job_name": "muster", "static_configs": [{"targets": [target]}]}]
        told = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config = {"global": told, "rule_files": ["rules.yaml"], "scrape_configs": scraped}
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), "utf-8")
        self.url = f"http://127.0.0.1:{free_port()}"
        listen = self.url.removeprefix("http://")
        options = ["--config.file=prometheus.yaml", "--storage.tsdb.path=data", f"--web.listen-address={listen}"]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen([program, *options], cwd=folder, stdout=log, stderr=log)

    def ask(self, expr: str) -> list[object]:
        """The samples of an instant query; none while nobody answers."""
        query = urllib.parse.urlencode({"query": expr})
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=10) as answer:
                found: list[object] = json.load(answer)["data"]["result"]
                return found
        except OSError:
            return []

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[Sandbox, Scraper]]:
    program = prometheus()
    sandbox = Sandbox(tmp_path / "box")
    page = re.search(r"The page: +http://([^/\s]+)/", sandbox.said.read_text())
    assert page
    scraper = Scraper(program, tmp_path / "prometheus", page[1])
    yield sandbox, scraper
    scraper.stop()
    sandbox.process.terminate()
    sandbox.process.wait(60)


def test_every_query_of_every_dashboard_has_an_answer(scene: tuple[Sandbox, Scraper]) -> None:
    sandbox, scraper = scene
    batch, _ = sandbox.client()
    asked = {"nvidia.com/gpu": "8"}
    batch.create_namespaced_job("research", job("train", "research", "normal", pods=2, requests=asked))
    sandbox.until(lambda: scraper.ask('muster_gangs{state="Admitted"} > 0'), "the job runs and is scraped")
    waiting = job("waits", "research", "normal", pods=90, requests=asked)
    batch.create_namespaced_job("research", waiting)
    sandbox.until(lambda: scraper.ask("muster_pending_gangs > 0"), "another waits")
    open_queries = {expr: (board, panel) for board, panel, expr in dashboards.queries()}
    open_queries |= {name: ("rules", name) for name in alerts.RECORDED}
    deadline = time.monotonic() + WITHIN_S
    while open_queries and time.monotonic() < deadline:
        answered = [it for it in open_queries if scraper.ask(it.replace("$__rate_interval", "1m"))]
        for expr in answered:
            del open_queries[expr]
        time.sleep(0.5)
    assert open_queries == {}
    assert not scraper.ask('ALERTS{alertstate="firing"}')
