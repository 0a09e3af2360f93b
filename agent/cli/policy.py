"""`muster policy test`: the cases that stand beside the checks of a FleetPolicy."""

import sys
from pathlib import Path

from agent.cli import exits
from agent.cli.validate import read_folder
from fleet.policy.checks import CheckCase, cases_of, unreadable_checks
from model.loader import InvalidFleet, load
from model.plain_text import counted, plain
from model.report import text as problem_text


def run_policy_test(path: Path) -> int:
    """Runs every case and prints what became of it; the exit code."""
    try:
        fleet = load(read_folder(path), further=(unreadable_checks,))
    except InvalidFleet as invalid:
        sys.stdout.write(problem_text(invalid.problems) + "\n")
        return exits.INVALID
    except OSError as error:
        exits.complain(f"{path}: {error.strerror or error}")
        return exits.ERROR
    cases = list(cases_of(fleet))
    for it in cases:
        sys.stdout.write(plain(_told(it)) + "\n")
    failed = sum(not it.as_wanted for it in cases)
    untested = [check.name for check in fleet.policy.spec.checks if not check.tests]
    if untested:
        sys.stdout.write(plain(f"without a case: {', '.join(untested)}") + "\n")
    sys.stdout.write(plain(f"{counted(len(cases), 'case')}, {failed} failed.") + "\n")
    return exits.INVALID if failed else exits.OK


def _told(it: CheckCase) -> str:
    if it.as_wanted:
        return f"ok    {it.check} #{it.number}"
    what = it.error or ("it holds, and should not" if it.held else "it does not hold, and should")
    return f"FAIL  {it.check} #{it.number}: {what}"
