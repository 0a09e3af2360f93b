"""Answers of dcgm-exporter, read: slices and whole GPUs, names of labels, blanks, bounds; one is asked on loopback."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.snapshot.gpus import ComplaintKind, GpuComplaint, GpuReading, GpuScrape
from providers import dcgm
from providers.dcgm import DcgmError, read_scrape, scrape

SAMPLE = (Path(__file__).resolve().parents[1] / "data" / "dcgm_mig.prom").read_bytes()
A100 = "NVIDIA A100-SXM4-40GB"
CUT, WHOLE = "GPU-7099682b-a20d-2bcc-74ab-b9060454d81e", "GPU-473571f2-fb37-ef7e-50fe-9885b74a23cd"


def line(name: str, value: object, **labels: str) -> str:
    """A line as dcgm-exporter writes it."""
    named = {"gpu": "0", "UUID": "GPU-1", "modelName": A100, "hostname": "node-a", **labels}
    said = ",".join(f'{key}="{it}"' for key, it in named.items())
    return f"{name}{{{said}}} {value}\n"


def only(text: str) -> GpuReading:
    (found,) = read_scrape(text.encode(), "it").readings
    return found


def test_a_scrape_of_a_machine_that_is_partly_cut() -> None:
    found = {(it.gpu, it.instance): it for it in read_scrape(SAMPLE, "it").readings}
    assert found[CUT, "7"] == GpuReading(
        "gpu-node-a", CUT, "7", "1g.5gb", A100, "team-nlp", "notebook-0", 0.000062, 98.0, None, 0
    )
    assert (found[CUT, "9"].active, found[CUT, "9"].used_mib, found[CUT, "9"].free_mib) == (0.999917, 4384.0, 480.0)
    assert found[CUT, "5"].pod == "", "nobody holds it"
    assert (found[WHOLE, ""].profile, found[WHOLE, ""].pod, found[WHOLE, ""].active) == ("", "train-0", 0.87421)
    assert len(found) == 4


ACTIVE, UTIL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"


@pytest.mark.parametrize(
    ("text", "active"),
    [
        pytest.param(line(ACTIVE, 0.5) + line(UTIL, 90), 0.5, id="the ratio goes before the percentage"),
        pytest.param(line(UTIL, 90), 0.9, id="which counts where it is alone"),
        pytest.param(line(UTIL, 90, GPU_I_PROFILE="1g.5gb", GPU_I_ID="7"), None, id="but says nothing of a slice"),
        pytest.param(line(ACTIVE, 1.0001), 1.0, id="more than all is all"),
        pytest.param(line("DCGM_FI_DEV_FB_USED", 5) + line(ACTIVE, 140737488355328), None, id="a blank"),
        pytest.param(line("DCGM_FI_DEV_FB_USED", 5) + line(ACTIVE, "NaN"), None, id="no number"),
    ],
)
def test_how_active_a_device_is(text: str, active: float | None) -> None:
    assert only(text).active == active


@pytest.mark.parametrize(
    "labels",
    [
        {"namespace": "ml", "pod": "a"},
        {"pod_namespace": "ml", "pod_name": "a"},
        {"namespace": "gpu-operator", "pod": "exporter", "exported_namespace": "ml", "exported_pod": "a"},
    ],
)
def test_whose_it_is_by_any_generation_of_names(labels: dict[str, str]) -> None:
    found = only(line(ACTIVE, 0.5, **labels))
    assert (found.namespace, found.pod) == ("ml", "a")


def test_each_pod_of_a_shared_gpu_has_a_row() -> None:
    text = "".join(line(ACTIVE, 0.5, namespace="ml", pod=pod) for pod in "ab")
    assert [it.pod for it in read_scrape(text.encode(), "it").readings] == ["a", "b"]


@pytest.mark.parametrize(
    "content",
    [
        b"x" * (dcgm.MOST_BYTES + 1),
        b"\n" * (dcgm.MOST_LINES + 1),
        b"\xff\xfe",
        line(ACTIVE, "many").encode(),
        b'DCGM_FI_DEV_FB_USED{gpu="0" 5',
    ],
)
def test_what_is_no_answer_of_an_exporter(content: bytes) -> None:
    with pytest.raises(DcgmError):
        read_scrape(content, "it")


def test_names_of_any_length_are_left_out() -> None:
    assert read_scrape(line(ACTIVE, 0.5, pod="a" * 254).encode(), "it") == GpuScrape()


@given(st.binary(max_size=400) | st.text(max_size=200).map(lambda it: line(ACTIVE, it, pod=it).encode()))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        read_scrape(content, "it")
    except DcgmError:
        return


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(line("DCGM_FI_DEV_XID_ERRORS", 0), None, id="no error"),
        pytest.param(
            line("DCGM_FI_DEV_XID_ERRORS", 79, err_code="79", err_msg="GPU has fallen off the bus"),
            GpuComplaint("GPU-1", ComplaintKind.XID, 79, "GPU has fallen off the bus"),
            id="an error, in the driver's words",
        ),
        pytest.param(
            line("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1),
            GpuComplaint("GPU-1", ComplaintKind.ROW_REMAP_FAILURE, 1),
            id="a row that was not remapped",
        ),
        pytest.param(line("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0), None, id="none of these"),
        pytest.param(
            line("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 4),
            GpuComplaint("GPU-1", ComplaintKind.UNCORRECTABLE_ECC, 4),
            id="ECC",
        ),
        pytest.param(line("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 9223372036854775794), None, id="a blank"),
        pytest.param(line("DCGM_EXP_GPU_HEALTH_STATUS", 10, health_watch="PCIE"), None, id="a warning of DCGM"),
        pytest.param(
            line("DCGM_EXP_GPU_HEALTH_STATUS", 20, health_watch="PCIE", health_error_code="X"),
            GpuComplaint("GPU-1", ComplaintKind.HEALTH, 20, "PCIE, X"),
            id="a failure",
        ),
    ],
)
def test_what_dcgm_has_against_a_gpu(text: str, found: GpuComplaint | None) -> None:
    assert read_scrape(text.encode(), "it").complaints == ((found,) if found else ())


def test_slices_of_one_gpu_complain_once_and_the_sample_of_its_bus() -> None:
    rows = "".join(line("DCGM_FI_DEV_XID_ERRORS", 48, GPU_I_PROFILE="1g.5gb", GPU_I_ID=str(it)) for it in range(7))
    assert len(read_scrape(rows.encode(), "it").complaints) == 1
    assert [(it.code, it.words) for it in read_scrape(SAMPLE, "it").complaints] == [(79, "GPU has fallen off the bus")]


# -- on loopback ------------------------------------------------------------------------------------------------------


@contextmanager
def exporter(status: int = 200, content: bytes = SAMPLE, location: str = "") -> Iterator[str]:
    """An exporter that answers with this; its address."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_exporter_is_asked() -> None:
    with exporter() as url:
        assert scrape(url) == read_scrape(SAMPLE, url)


@pytest.mark.parametrize(("status", "location"), [(500, ""), (404, ""), (302, "http://127.0.0.1:1/elsewhere")])
def test_an_exporter_that_refuses_or_leads_elsewhere(status: int, location: str) -> None:
    with exporter(status, b"no", location) as url, pytest.raises(DcgmError, match=str(status)):
        scrape(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/metrics", "file:///etc/passwd", "exporter"])
def test_an_exporter_that_is_not_there(url: str) -> None:
    with pytest.raises(DcgmError):
        scrape(url)
