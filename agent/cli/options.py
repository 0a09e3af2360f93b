"""Options that several commands have, and the formats that they print."""

import os
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer


class ProblemFormat(StrEnum):
    """How `validate` prints problems."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


class PlanFormat(StrEnum):
    """How `plan` prints."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    GITLAB = "gitlab"


class ReplayFormat(StrEnum):
    """How `replay` prints."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"


class CostFormat(StrEnum):
    """How `cost` prints."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    HTML = "html"
    FOCUS = "focus"


class ReportFormat(StrEnum):
    """How `report` prints."""

    TABLE = "table"
    JSON = "json"
    HTML = "html"


class TableFormat(StrEnum):
    """How `offers` and `history` print."""

    TEXT = "text"
    JSON = "json"


class GetFormat(StrEnum):
    """How `get` prints."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Default: $KUBECONFIG, ~/.kube/config, in-cluster.")
]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.")]
AgentAddress = Annotated[
    str, typer.Option("--agent", metavar="URL", help="Ask the agent's page there; default: $MUSTER_AGENT, if set.")
]
FilesOrAgent = Annotated[
    Path | None,
    typer.Option("--fleet", help="The fleet's files, instead of the agent; default without an agent: this folder."),
]
LookRegion = Annotated[
    str, typer.Option("--region", help="With files: AWS region of the offers; default: of the fleet's zones.")
]
LookCluster = Annotated[
    str, typer.Option("--cluster", help="With files: the Cluster of them that is meant; default: the only one.")
]
Output = Annotated[TableFormat, typer.Option("--output", "-o", help="Output format.")]
Cluster = Annotated[str, typer.Option("--cluster", help="Name of the FleetSync; default: the only one.")]
FleetCluster = Annotated[
    str, typer.Option("--cluster", help="The Cluster of the repository that is meant; default: the only one, or all.")
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.0, help="Seconds to wait for the agent's answer.")]
CloneArgument = Annotated[Path, typer.Argument(help="A clone of the fleet repository, fetched.")]
FleetPath = Annotated[
    str, typer.Option("--path", help="Folder of the fleet inside the repository; default: as the agent reads it.")
]
AgentSettings = Annotated[
    Path, typer.Option("--config", "-c", help="The agent's settings, which say where its ledger is.")
]
LedgerFile = Annotated[
    str, typer.Option("--ledger", help="Its file, or s3://BUCKET/PREFIX, in place of what the settings say.")
]
CostMonth = Annotated[str, typer.Option("--month", help="Such as 2026-10 (UTC); default: the running one.")]
CostCluster = Annotated[str, typer.Option("--cluster", help="Only this cluster of the ledger; default: all.")]
PriceRegion = Annotated[str, typer.Option("--region", help="Region of the prices; default: that of its zones.")]

_WINDOW = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,5})h)?(?:(\d{1,5})m)?")


AGENT_VARIABLE: Final = "MUSTER_AGENT"
"""Address of the agent's page, where --agent does not give it."""


def agent_address(given: str) -> str:
    """Returns the address of the agent that an option or the environment gives; empty for neither."""
    return given or os.environ.get(AGENT_VARIABLE, "")


def duration_s(text: str) -> float:
    """Returns a time such as `14d`, `36h` or `1d12h` in seconds; ValueError for any other."""
    found = _WINDOW.fullmatch(text)
    days, hours, minutes = (int(it or 0) for it in found.groups()) if found else (0, 0, 0)
    if not days and not hours and not minutes:
        raise ValueError(f"{text!r} is no time such as 14d, 36h or 1d12h")
    return 86_400.0 * days + 3600.0 * hours + 60.0 * minutes
