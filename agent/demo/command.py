"""`muster demo`: the steps in order; exit 0 only if every expectation held."""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from agent.cli import exits
from agent.clouds import DEFAULT
from agent.demo.narrator import ExpectationFailed, Narrator
from agent.demo.stage import DemoStage, NewsHook
from agent.demo.steps import STEPS
from agent.demo.summary import costs, gangs, machines, read_journal
from agent.logs import configure_logs
from agent.sandbox.command import sandboxed
from providers.sim.clouds import cloud_simulator

SPEED = 20.0


def run_demo(folder: Path | None, *, keep: bool) -> int:
    """Run the demo; the exit code."""
    configure_logs("console", level="ERROR")
    for name, value in cloud_simulator(DEFAULT).environment.items():
        os.environ.setdefault(name, value)
    tell = Narrator()
    with contextlib.ExitStack() as stack:
        if folder is not None:
            place = folder
        elif keep:
            place = Path(tempfile.mkdtemp(prefix="muster-demo-"))
        else:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-demo-")))
        tell.say(
            f"API server, EC2, git and the agent on this machine; time runs {SPEED:.0f} times faster for machines."
        )
        try:
            world, repository, forge, agent = stack.enter_context(sandboxed(place, cluster="demo", speed=SPEED))
        except FileExistsError as error:
            exits.complain(error)
            return exits.ERROR
        hook = stack.enter_context(NewsHook())
        os.environ |= {hook.address_env: hook.address, hook.key_env: hook.key}
        agent.start()
        agent.wait_healthy()
        stage = DemoStage(world, repository, forge, agent, hook)
        try:
            for number, (title, step) in enumerate(STEPS, 1):
                tell.step(number, title)
                step(stage, tell)
        except ExpectationFailed as failure:
            sys.stderr.write(f"\nmuster demo: this did not hold: {failure}\n{_tail(agent.log)}\n")
            return exits.ERROR
        agent.stop()
        tell.table("Gangs", gangs(read_journal(agent.journal)))
        tell.table("Machines bought and returned", machines(stage.ledger()))
        tell.table("Cost by team", costs(stage.books()))
        tell.say("")
        tell.say(f"All {tell.held} expectations held, in {tell.elapsed_s:.0f} s.")
        if keep:
            tell.say(f"Files and logs are in {place}")
    return exits.OK


def _tail(log: Path, lines: int = 30) -> str:
    """The end of the agent's log, for the one who has to find out."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return "\n".join(text.splitlines()[-lines:])
