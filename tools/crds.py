"""Copies the CustomResourceDefinitions into a folder: `python -m tools.crds deploy/crds`."""

import sys
from pathlib import Path

from providers.kube.objects.crds import NAMES, text_of


def main(folder: Path) -> None:
    """Write every definition under its plural."""
    folder.mkdir(parents=True, exist_ok=True)
    for plural in NAMES:
        (folder / f"{plural}.yaml").write_text(text_of(plural), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
