"""`muster gpus advise`: exporters asked for a while, files, and what is wrong with them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.cli import exits
from agent.cli.app import app
from agent.cli.gpus import UseRequest, advise_gpus
from providers.clock import VirtualClock
from tests.providers.test_dcgm import exporter, line

ACTIVE, USED = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED"
HELD = {"namespace": "ml", "pod": "notebook-0", "GPU_I_PROFILE": "3g.20gb", "GPU_I_ID": "1"}
TEXT = (line(ACTIVE, 0.0, **HELD) + line(USED, 700, **HELD)).encode()


def request(*urls: str, lasts_s: float = 3600.0) -> UseRequest:
    return UseRequest(urls, (), lasts_s, 60.0, 1800.0, "us-east-1")


def test_an_exporter_is_asked_for_an_hour(capsys: pytest.CaptureFixture[str]) -> None:
    clock = VirtualClock()
    with exporter(content=TEXT) as url:
        assert advise_gpus(request(url), clock, clock.advance) == exits.OK
    out = capsys.readouterr().out
    assert (
        "ml/notebook-0  holds 3g.20gb of NVIDIA A100-SXM4-40GB on node-a: 0 % active, 700 MiB at most, 61 readings"
        in out
    )
    assert "advice: ml/notebook-0: a slice 1g.5gb would be enough: " in out
    assert "idle: ml/notebook-0 has done nothing with 3g.20gb of NVIDIA A100-SXM4-40GB for 60m" in out


def test_an_exporter_that_fails_now_and_then_is_asked_on_and_one_that_never_answers_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = VirtualClock()
    assert advise_gpus(request("http://127.0.0.1:1/metrics"), clock, clock.advance) == exits.ERROR
    assert capsys.readouterr().err.count("does not answer") == 11


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "scrape.prom"
    path.write_bytes(TEXT)
    done = CliRunner().invoke(app, ["gpus", "advise", "--scrape", str(path)])
    assert done.exit_code == exits.OK
    assert "of 1 there are fewer than 10 readings" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["--scrape", "nowhere"], exits.ERROR),
        (["--exporter", "http://127.0.0.1:1/metrics"], exits.ERROR),
        (["--exporter", "http://127.0.0.1:1/metrics", "--for", "ever"], 2),
    ],
)
def test_what_cannot_be_asked(arguments: list[str], code: int) -> None:
    assert CliRunner().invoke(app, ["gpus", "advise", *arguments]).exit_code == code
