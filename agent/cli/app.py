"""The commands and their options; what they do lives in the modules beside this one."""

import os
import shlex
import sys
from copy import copy
from pathlib import Path
from typing import Annotated

import typer
from typer.models import CommandInfo, TyperInfo

from agent.cli import exits, garbage
from agent.cli.advice_commands import gpus, layouts
from agent.cli.cluster_commands import COMPLETE, PROGRAM, cluster
from agent.cli.explain_commands import explain
from agent.cli.options import (
    AgentAddress,
    AgentSettings,
    Context,
    CostCluster,
    CostFormat,
    CostMonth,
    FilesOrAgent,
    FleetCluster,
    Kubeconfig,
    LedgerFile,
    LookCluster,
    Output,
    PlanFormat,
    PriceRegion,
    ProblemFormat,
    ReplayFormat,
    ReportFormat,
    TableFormat,
    agent_address,
    duration_s,
)
from agent.cli.sync_commands import sync

app = typer.Typer(
    name="muster",
    help="Runs a GPU fleet from a git repository: quota, placement and purchase as one decision.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
policy = typer.Typer(help="Try the rules of a FleetPolicy.", no_args_is_help=True, rich_markup_mode=None)


def _told_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version as version_of

        sys.stdout.write(f"muster {version_of('muster')}\n")
        raise typer.Exit


app.add_typer(explain)
app.add_typer(gpus)
app.add_typer(layouts)
app.add_typer(policy, name="policy")
app.add_typer(sync)
app.add_typer(cluster)


@app.command()
def validate(
    path: Annotated[Path, typer.Argument(help="A folder or file of fleet declarations.")] = Path(),
    region: Annotated[
        str, typer.Option("--region", help="Region whose offers it is held against; default: that of its zones.")
    ] = "",
    cluster: FleetCluster = "",
    output: Annotated[ProblemFormat, typer.Option("--output", "-o", help="Output format.")] = ProblemFormat.TEXT,
) -> None:
    """Check a fleet: every problem at once, with file, line and remedy. Exit 0 valid, 3 invalid, 1 error."""
    from agent.cli.validate import run_validate

    raise typer.Exit(run_validate(path, output.value, region, cluster))


@policy.command("test")
def policy_test(
    path: Annotated[Path, typer.Argument(help="A folder or file of fleet declarations.")] = Path(),
) -> None:
    """Run the cases beside the checks of the FleetPolicy. Exit 0 all hold, 3 some do not or it is invalid, 1 error."""
    from agent.cli.policy import run_policy_test

    raise typer.Exit(run_policy_test(path))


@app.command()
def schema(
    kind: Annotated[str, typer.Argument(help="A kind, such as NodePool; empty = a document of any kind.")] = "",
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", help="Write files there instead: all, or that of the kind.")
    ] = None,
) -> None:
    """Print the JSON schema of a kind, for editors and other tools."""
    from agent.cli.schema import run_schema

    raise typer.Exit(run_schema(kind, output_dir))


@app.command()
def plan(
    repository: Annotated[Path, typer.Argument(help="The fleet repository (a clone), or a folder of it.")] = Path(),
    base: Annotated[
        str, typer.Option("--from", help="Base revision; empty = with --world what is in force there, else nothing.")
    ] = "",
    head: Annotated[str, typer.Option("--to", help="Head revision; empty = the working tree.")] = "",
    path: Annotated[str, typer.Option("--path", help="Folder of the fleet inside the repository.")] = "",
    against_world: Annotated[bool, typer.Option("--world/--no-world", help="Forecast against the cluster.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    region: Annotated[str, typer.Option("--region", help="Region of the prices; default: that of its zones.")] = "",
    merge: Annotated[
        bool, typer.Option("--merge/--no-merge", help="Merge a head that lacks the base into it, or compare the two.")
    ] = True,
    observe: Annotated[
        bool, typer.Option("--observe", help="With --world: the cluster is one on which Muster is not installed.")
    ] = False,
    cluster: FleetCluster = "",
    output: Annotated[PlanFormat, typer.Option("--output", "-o", help="Output format.")] = PlanFormat.TEXT,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit 2 when there are changes.")
    ] = False,
) -> None:
    """Show what a change of the fleet would do: declarations, machines, gangs, GPUs, USD/h. Changes nothing."""
    from agent.cli.plan import PlanRequest, run_plan

    if observe and not against_world:
        raise typer.BadParameter("it needs --world", param_hint="--observe")
    request = PlanRequest(
        repository, base, head, path, against_world, kubeconfig, context, region, merge, observe, cluster
    )
    raise typer.Exit(run_plan(request, output.value, detailed_exitcode=detailed_exitcode))


@app.command()
def replay(
    repository: Annotated[Path, typer.Argument(help="The fleet repository (a clone), or a folder of it.")] = Path(),
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Work: CSV, a trace of Philly or openb, Workloads of Kueue as JSON.")
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option("--recorded", help="Work: what the agent has recorded (`record` in its settings).")
    ] = None,
    base: Annotated[str, typer.Option("--from", help="Base revision or folder; empty = only the head is played.")] = "",
    head: Annotated[str, typer.Option("--to", help="Head revision or folder; empty = the working tree.")] = "",
    path: Annotated[str, typer.Option("--path", help="Folder of the fleet inside the repository.")] = "",
    window: Annotated[
        str, typer.Option("--window", help="How long from the first arrival on (14d); default: until all could end.")
    ] = "",
    queue: Annotated[str, typer.Option("--queue", help="Put all work into this queue, whatever it names.")] = "",
    look: Annotated[
        float, typer.Option("--look", min=0, help="Seconds between two looks at waiting gangs; 0 = at every event.")
    ] = 60.0,
    scenarios: Annotated[
        Path | None, typer.Option("--scenarios", help="Axes of prices, shortages and quotas: all combinations (YAML).")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=0, help="Processes; 0 = as many as processors.")] = 0,
    executor: Annotated[
        str, typer.Option("--executor", help="An existing cluster instead: dask://HOST:PORT (needs muster[dask]).")
    ] = "",
    region: Annotated[str, typer.Option("--region", help="Region of the prices; default: that of its zones.")] = "",
    cluster: FleetCluster = "",
    output: Annotated[ReplayFormat, typer.Option("--output", "-o", help="Output format.")] = ReplayFormat.TABLE,
) -> None:
    """What a change of the fleet does to waits: the same work under both fleets, in virtual time."""
    from agent.cli.replay import ReplayRequest, run_replay

    work = trace or recorded
    if work is None or (trace and recorded):
        raise typer.BadParameter("one of --trace and --recorded names the work")
    try:
        window_s = duration_s(window) if window else None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--window") from None
    request = ReplayRequest(
        repository, base, head, path, work, queue, window_s, look, region, scenarios, jobs, executor, cluster
    )
    raise typer.Exit(run_replay(request, output.value))


@app.command()
def offers(
    gpu: Annotated[str, typer.Option("--gpu", help="A model (h100), a MIG profile (1g.10gb), or a fraction (l4/8).")],
    count: Annotated[int, typer.Option("--count", min=1, help="How many of it.")] = 1,
    pool: Annotated[str, typer.Option("--pool", help="Only this node pool.")] = "",
    zone: Annotated[str, typer.Option("--zone", help="Only this zone.")] = "",
    capacity_type: Annotated[
        str, typer.Option("--capacity-type", help="Only this one: reserved, spot or on-demand.")
    ] = "",
    agent: AgentAddress = "",
    fleet: FilesOrAgent = None,
    world: Annotated[
        bool,
        typer.Option("--world/--no-world", help="With files: ask the cluster what limits leave and what is short."),
    ] = False,
    most: Annotated[int, typer.Option("--most", min=0, help="Rows of the table; 0 = all.")] = 20,
    region: PriceRegion = "",
    cluster: LookCluster = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = TableFormat.TEXT,
) -> None:
    """What could serve so many GPUs: every way the pools may buy them, cheapest first, and what is against each."""
    from agent.cli.offers import OffersRequest, show_offers

    asked, place = (gpu, count, pool, zone, capacity_type), (kubeconfig, context, region, most, cluster)
    raise typer.Exit(show_offers(OffersRequest(*asked, agent_address(agent), fleet, world, *place), output.value))


@app.command()
def cost(
    month: CostMonth = "",
    by: Annotated[
        str,
        typer.Option(
            "--by", help="team (default), pool, queue, namespace, gang, user, day, type, zone, ... with commas."
        ),
    ] = "",
    config: AgentSettings = Path("muster.yaml"),
    ledger: LedgerFile = "",
    cluster: CostCluster = "",
    output: Annotated[CostFormat, typer.Option("--output", "-o", help="Output format.")] = CostFormat.TABLE,
) -> None:
    """What a month cost, who had it and what nobody used, from the ledger; with a forecast to the month's end."""
    from agent.cli.cost import CostRequest, show_costs
    from providers.clock import SystemClock

    raise typer.Exit(show_costs(CostRequest(month, by, config, ledger, cluster), output.value, SystemClock()))


@app.command()
def report(
    month: CostMonth = "",
    config: AgentSettings = Path("muster.yaml"),
    ledger: LedgerFile = "",
    cluster: CostCluster = "",
    output: Annotated[ReportFormat, typer.Option("--output", "-o", help="Output format.")] = ReportFormat.TABLE,
    agent: Annotated[str, typer.Option("--agent", help="Its page: also what is made of GPUs now; default: not.")] = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """A month in numbers, from the ledger: utilisation, waits, losses, fragmentation, spot, cost of useful hours."""
    from agent.cli.cost import CostRequest
    from agent.cli.report import UseSource, show_report
    from providers.clock import SystemClock

    ask, source = CostRequest(month, "team", config, ledger, cluster), UseSource(agent, kubeconfig, context)
    raise typer.Exit(show_report(ask, output.value, SystemClock(), source))


@app.command()
def run(
    config: Annotated[Path, typer.Option("--config", "-c", help="The agent's settings.")] = Path("muster.yaml"),
) -> None:
    """Run the agent until it is told to stop."""
    garbage.look_as_usual()
    from agent.cli.run import run_agent

    raise typer.Exit(run_agent(config))


@app.command()
def sandbox(
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Where it keeps its files; default: a new temporary folder.")
    ] = None,
    api_port: Annotated[int, typer.Option("--api-port", help="Port of the API server; 0 = any.")] = 0,
    speed: Annotated[
        float, typer.Option("--speed", min=0.1, max=100, help="How much faster than life machines boot and drain.")
    ] = 10.0,
    shares: Annotated[
        str,
        typer.Option("--consumable-shares", help="The DRA driver's flag: memory, unlimited or a number of claims."),
    ] = "",
) -> None:
    """A whole world on this machine: API server, EC2, git repository and the agent. Stays up until Ctrl-C."""
    _needs_sandbox()
    garbage.look_as_usual()
    from agent.sandbox.command import run_sandbox

    if not (shares in {"", "memory", "unlimited"} or (shares.isdecimal() and int(shares))):
        raise typer.BadParameter(f"{shares} is none of memory, unlimited or a number of claims")
    raise typer.Exit(run_sandbox(folder, api_port, speed, shares))


@app.command()
def demo(
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Where it keeps its files; default: a new temporary folder.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the files and the logs.")] = False,
) -> None:
    """The main job, from a git push to a running gang, with every expectation checked. Exit 0 only if all held."""
    _needs_sandbox()
    garbage.look_as_usual()
    from agent.demo.command import run_demo

    raise typer.Exit(run_demo(folder, keep=keep))


@app.callback()
def everywhere(
    told: Annotated[
        bool, typer.Option("--version", callback=_told_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of no command."""


@app.command()
def version() -> None:
    """Print the version."""
    _told_version(True)


def _needs_sandbox() -> None:
    """The simulated world needs an extra, and the image for clusters lacks it: say so instead of failing to import."""
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("moto", "markdown_it", "agent.sandbox", "providers.sim")):
        sys.stderr.write("muster: this needs the extra 'sandbox'; install it with: pip install 'muster[sandbox]'\n")
        raise typer.Exit(exits.ERROR)


def run_program() -> None:
    """Run the command that the words of the process name, as the program by whose name it was called."""
    name = Path(sys.argv[0]).name
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for some reads what every package says
    try:
        _RUN.get(name, _run)()
    except KeyboardInterrupt:
        raise SystemExit(exits.INTERRUPTED) from None


def only(whole: typer.Typer, word: str) -> typer.Typer:
    """The program with the command of that name alone, or with the group that has it: all take 8 ms to build.

    The whole, where no command is called so.
    """
    commands = [it for it in whole.registered_commands if word == _name(it)]
    groups = [it for it in whole.registered_groups if word in _words(it)]
    if not commands and not groups:
        return whole
    found = copy(whole)
    found.registered_commands, found.registered_groups = commands, groups
    return found


def _name(command: CommandInfo) -> str:
    return command.name or (command.callback.__name__.replace("_", "-") if command.callback else "")


def _words(group: TyperInfo) -> set[str]:
    """Names by which a group or, where it has none, its commands are called."""
    inner = group.typer_instance
    named = {it for it in (group.name, inner.info.name if inner else None) if isinstance(it, str)}
    if named or inner is None:
        return named
    return {_name(it) for it in inner.registered_commands}.union(*map(_words, inner.registered_groups))


def _run() -> None:
    only(app, sys.argv[1] if sys.argv[1:] else "")(prog_name=PROGRAM)


def _run_for_kubectl() -> None:
    """`kubectl muster ...`: kubectl runs the file of that name with what is left of the line."""
    only(app, sys.argv[1] if sys.argv[1:] else "")(prog_name="kubectl muster")


def _complete_for_kubectl() -> None:
    """Words for kubectl, which wants to hear behind them that they are no files."""
    words = [PROGRAM, *(sys.argv[1:] or [""])]
    asked = {"COMP_WORDS": shlex.join(words), "COMP_CWORD": str(len(words) - 1), COMPLETE: "complete_bash"}
    os.environ.update(asked)
    try:
        app(prog_name=PROGRAM)
    finally:
        typer.echo("\n:4")


_RUN = {"kubectl-muster": _run_for_kubectl, "kubectl_complete-muster": _complete_for_kubectl}
"""Names under which kubectl looks for a plugin and for what completes it; pyproject.toml installs both."""
