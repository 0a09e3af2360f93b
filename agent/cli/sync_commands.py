"""The commands that operate the sync by hand, in Flux's words, and their options."""

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.options import (
    CloneArgument,
    Cluster,
    Context,
    FleetPath,
    Kubeconfig,
    Output,
    PlanFormat,
    PriceRegion,
    TableFormat,
    Timeout,
)

sync = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@sync.command()
def suspend(
    reason: Annotated[str, typer.Option("--reason", help="Why; shown in the FleetSync.")] = "",
    cluster: Cluster = "",
    timeout: Timeout = 60.0,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Let no new revision come into force. What is in force goes on: jobs start, machines are bought and given back."""
    from agent.cli import operate

    raise typer.Exit(operate.suspend(operate.SyncPlace(kubeconfig, context, cluster, timeout), reason))


@sync.command()
def resume(
    cluster: Cluster = "", timeout: Timeout = 60.0, kubeconfig: Kubeconfig = None, context: Context = None
) -> None:
    """Let revisions come into force again, and wait for the newest: exit 0 in force, 3 invalid, 5 refused, 1 else."""
    from agent.cli import operate

    raise typer.Exit(operate.resume(operate.SyncPlace(kubeconfig, context, cluster, timeout)))


@sync.command()
def reconcile(
    cluster: Cluster = "", timeout: Timeout = 60.0, kubeconfig: Kubeconfig = None, context: Context = None
) -> None:
    """Look at the repository now, and wait for the newest revision: exit 0 in force, 3 invalid, 5 refused, 1 else."""
    from agent.cli import operate

    raise typer.Exit(operate.reconcile(operate.SyncPlace(kubeconfig, context, cluster, timeout)))


@sync.command()
def history(
    cluster: Cluster = "", kubeconfig: Kubeconfig = None, context: Context = None, output: Output = TableFormat.TEXT
) -> None:
    """What became of the last revisions: when, by which plan, whose work, who signed, approved and merged."""
    from agent.cli import operate

    raise typer.Exit(operate.history(operate.SyncPlace(kubeconfig, context, cluster), output.value))


@sync.command()
def diff(
    repository: CloneArgument = Path(),
    ref: Annotated[str, typer.Option("--ref", help="Revision; default: the newest that the agent has seen.")] = "",
    path: FleetPath = "",
    region: PriceRegion = "",
    cluster: Cluster = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Annotated[PlanFormat, typer.Option("--output", "-o", help="Output format.")] = PlanFormat.TEXT,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit 2 when there are changes.")
    ] = False,
) -> None:
    """Show what the newest revision would change of what is in force, in the agent's world. Changes nothing."""
    from agent.cli import compare
    from agent.cli.operate import SyncPlace

    place, clone = SyncPlace(kubeconfig, context, cluster), compare.FleetClone(repository, path, region)
    raise typer.Exit(compare.diff(place, clone, ref, output.value, detailed_exitcode=detailed_exitcode))


@sync.command()
def rollback(
    revision: Annotated[str, typer.Argument(help="The revision to go back to (`muster history` has them).")],
    repository: CloneArgument = Path(),
    path: FleetPath = "",
    region: PriceRegion = "",
    cluster: Cluster = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show what going back to an earlier revision would do, and the commit to push for it. Changes nothing."""
    from agent.cli import compare
    from agent.cli.operate import SyncPlace

    place, clone = SyncPlace(kubeconfig, context, cluster), compare.FleetClone(repository, path, region)
    raise typer.Exit(compare.rollback(place, clone, revision))
