"""The commands that look at the fleet in the cluster and act on it there, and what shells ask of them."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from agent.cli.options import Context, GetFormat, Kubeconfig

PROGRAM: Final = "muster"
COMPLETE: Final = "_MUSTER_COMPLETE"
"""Where typer looks for what a shell asks of it."""

cluster = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


def _kinds(incomplete: str) -> Iterable[str]:
    from agent.cli.get import TABLES

    return [name for name in TABLES if name.startswith(incomplete)]


def _table(kind: str) -> str:
    """The name of the table that is meant, by any of its names; raises what typer prints as usage."""
    from agent.cli.get import TABLES
    from model.hints import did_you_mean

    names = {alias: name for name, table in TABLES.items() for alias in (name, *table.aliases)}
    if kind not in names:
        hint = did_you_mean(kind, list(names))
        raise typer.BadParameter(f"{kind!r} is none of {', '.join(TABLES)}; {hint}".rstrip("; "))
    return names[kind]


@cluster.command()
def get(
    kind: Annotated[
        str,
        typer.Argument(
            help="workloads, nodes, queues, teams, pools, claims, layouts, shortages or syncs.",
            callback=_table,
            autocompletion=_kinds,
        ),
    ],
    names: Annotated[list[str] | None, typer.Argument(help="Only those of these names.")] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Only work of this namespace.")] = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Annotated[GetFormat, typer.Option("--output", "-o", help="Output format.")] = GetFormat.TEXT,
) -> None:
    """Show what the agent knows, from the cluster: gangs, machines, queues, teams, pools, layouts."""
    from agent.cli.get import show

    raise typer.Exit(show(kind, names or (), (kubeconfig, context, namespace), output.value))


class Shell(StrEnum):
    """A shell that completes words."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@cluster.command()
def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print what makes a shell complete the commands, for its start-up file: source <(muster completion bash)."""
    from typer import completion as completions

    script = completions.get_completion_script  # type: ignore[attr-defined]
    typer.echo(script(prog_name=PROGRAM, complete_var=COMPLETE, shell=shell.value))


stop = typer.Typer(help="Have a workload leave, or a queue admit nothing.", no_args_is_help=True, rich_markup_mode=None)
start = typer.Typer(help="Let what was stopped go on.", no_args_is_help=True, rich_markup_mode=None)
cluster.add_typer(stop, name="stop")
cluster.add_typer(start, name="start")
WorkloadName = Annotated[str, typer.Argument(help="Job or Workload name, or namespace/name.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Its namespace; default: whichever has it.")]
QueueName = Annotated[str, typer.Argument(help="Name of the queue.")]
FleetFiles = Annotated[Path, typer.Option("--fleet", help="The fleet's files, of which the queue's is edited.")]


@stop.command("workload")
def stop_workload(
    name: WorkloadName, namespace: Namespace = "", kubeconfig: Kubeconfig = None, context: Context = None
) -> None:
    """Have a gang leave its machines, and wait unconsidered until it is started."""
    from agent.cli.stop import WorkPlace, activate

    raise typer.Exit(activate(name, WorkPlace(kubeconfig, context, namespace), active=False))


@start.command("workload")
def start_workload(
    name: WorkloadName, namespace: Namespace = "", kubeconfig: Kubeconfig = None, context: Context = None
) -> None:
    """Take a gang that was stopped back into its queue."""
    from agent.cli.stop import WorkPlace, activate

    raise typer.Exit(activate(name, WorkPlace(kubeconfig, context, namespace), active=True))


@stop.command("queue")
def stop_queue(
    name: QueueName,
    fleet: FleetFiles = Path(),
    drain: Annotated[bool, typer.Option("--drain", help="Have what runs leave as well.")] = False,
) -> None:
    """Write into the fleet's files that a queue admits nothing new. It is in force once it is pushed."""
    from agent.cli.stop import set_stop_policy

    raise typer.Exit(set_stop_policy(name, fleet, "HoldAndDrain" if drain else "Hold"))


@start.command("queue")
def start_queue(name: QueueName, fleet: FleetFiles = Path()) -> None:
    """Write into the fleet's files that a queue admits work again. It is in force once it is pushed."""
    from agent.cli.stop import set_stop_policy

    raise typer.Exit(set_stop_policy(name, fleet, "None"))
