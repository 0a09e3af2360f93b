"""The commands that say why something is as it is, and their options."""

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from agent.cli.options import (
    AgentAddress,
    Context,
    FilesOrAgent,
    Kubeconfig,
    LookCluster,
    LookRegion,
    Output,
    TableFormat,
    agent_address,
)

explain = typer.Typer(
    name="explain", help="Say why something is as it is.", no_args_is_help=True, rich_markup_mode=None
)
_Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Its namespace; default: whichever has it.")]


@explain.command("workload")
def explain_workload(
    name: Annotated[str, typer.Argument(help="Job or Workload name, or namespace/name.")],
    namespace: _Namespace = "",
    agent: AgentAddress = "",
    priority: Annotated[
        str, typer.Option(metavar="CLASS", help="What if it had this priority class? Asks the agent.")
    ] = "",
    queue: Annotated[str, typer.Option(metavar="QUEUE", help="What if it waited in this queue? Asks the agent.")] = "",
    gpus: Annotated[
        int | None, typer.Option(min=0, help="What if each pod asked so many GPUs? Asks the agent.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = TableFormat.TEXT,
) -> None:
    """Why a gang waits or runs, when it starts, what would change that, and what it costs."""
    from agent.cli.explain import Question, explain_gang

    if namespace and "/" in name:
        raise typer.BadParameter("the name has a namespace already", param_hint="--namespace")
    own, _, job = name.rpartition("/")
    question = Question(
        job,
        namespace or own,
        {"priority": priority, "queue": queue, "gpus": "" if gpus is None else str(gpus)},
        agent_address(agent),
        kubeconfig,
        context,
        json=output is TableFormat.JSON,
    )
    raise typer.Exit(explain_gang(question))


def _told(
    what: str, name: str, agent: str, fleet: Path | None, of: tuple[str, str], place: tuple[Path | None, str | None]
) -> int:
    """What the agent says of one of `nodes`, `pools`, `pods`, `buffers`; where there are files, what they come to.

    `of` is a region and a Cluster of the files.
    """
    address = agent_address(agent)
    if address and fleet is None and not any(of):
        from agent.cli.explain import print_asked

        return print_asked(address, f"/api/{what}/{quote(name)}", place)
    from agent.cli.here import explain_here

    return explain_here(what, name, fleet, *of, place)


@explain.command("node")
def explain_node(
    name: Annotated[str, typer.Argument(help="Name of a node, or of a claim.")],
    agent: AgentAddress = "",
    fleet: Annotated[
        Path | None,
        typer.Option(help="The fleet's files, instead of the agent: what each disruption method says by them."),
    ] = None,
    region: LookRegion = "",
    cluster: LookCluster = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Why a machine was bought, what stands on it, and why it is kept or going."""
    raise typer.Exit(_told("nodes", name, agent, fleet, (region, cluster), (kubeconfig, context)))


@explain.command("pod")
def explain_pod(
    name: Annotated[str, typer.Argument(help="Name of a pod, or namespace/name.")],
    namespace: _Namespace = "",
    agent: AgentAddress = "",
    fleet: FilesOrAgent = None,
    region: LookRegion = "",
    cluster: LookCluster = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Where a pod that belongs to no gang stands or should, or why no machine is bought for it."""
    name = f"{namespace}/{name}" if namespace else name
    raise typer.Exit(_told("pods", name, agent, fleet, (region, cluster), (kubeconfig, context)))


@explain.command("buffer")
def explain_buffer(
    name: Annotated[str, typer.Argument(help="Name of a CapacityBuffer, or namespace/name.")],
    agent: AgentAddress = "",
    fleet: FilesOrAgent = None,
    region: LookRegion = "",
    cluster: LookCluster = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """For how many pods of a CapacityBuffer there is room, on which machines, and why not for all."""
    raise typer.Exit(_told("buffers", name, agent, fleet, (region, cluster), (kubeconfig, context)))


@explain.command("pool")
def explain_pool(
    name: Annotated[str, typer.Argument(help="Name of a node pool.")],
    agent: AgentAddress = "",
    fleet: FilesOrAgent = None,
    region: LookRegion = "",
    cluster: LookCluster = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """What limits a pool: limits, budgets, freezes, shortages, the way to its offers, and who waits for it."""
    raise typer.Exit(_told("pools", name, agent, fleet, (region, cluster), (kubeconfig, context)))
