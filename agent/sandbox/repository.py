"""A real git repository on this machine: a bare one that the agent follows and a clone to push from."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

HOOK = """#!/bin/sh
# Has the forge look at the branches; what it answers is shown to who pushes.
exec {python} -c '
import sys, urllib.request
request = urllib.request.Request("{forge}/-/pushed", b"", {{"Origin": "{forge}"}})
try:
    with urllib.request.urlopen(request, timeout=10) as answer:
        sys.stdout.write(answer.read().decode())
except OSError:
    pass
' 2>/dev/null
"""


class Repository:
    """`fleet.git` and a clone beside it. Uses the git command, as a person would."""

    def __init__(self, folder: Path) -> None:
        self.bare = folder / "fleet.git"
        self.clone = folder / "fleet"

    def create(self, example: Path) -> None:
        """Make both, with the files of `example` in the clone, not pushed yet."""
        git(self.bare.parent, "init", "--quiet", "--bare", "--initial-branch=main", str(self.bare))
        git(self.bare.parent, "clone", "--quiet", str(self.bare), str(self.clone))
        git(self.clone, "config", "user.name", "Muster sandbox")
        git(self.clone, "config", "user.email", "sandbox@example.com")
        git(self.clone, "config", "commit.gpgsign", "false")
        git(self.clone, "checkout", "--quiet", "-B", "main")
        shutil.copytree(example, self.clone, dirs_exist_ok=True)

    def notify(self, forge: str) -> None:
        """Install a hook that tells the forge at this address of every push; the forge's own refs are not pushed to."""
        git(self.bare, "config", "receive.hideRefs", "refs/pull")
        hook = self.bare / "hooks" / "post-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(HOOK.format(python=sys.executable, forge=forge), encoding="utf-8")
        hook.chmod(hook.stat().st_mode | stat.S_IXUSR)

    def write(self, files: Mapping[str, str | None]) -> None:
        """Write files of the clone by path; None deletes one."""
        for name, text in files.items():
            path = self.clone / name
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")

    def push(self, message: str, branch: str = "main") -> str:
        """Commit everything and push it to a branch, which the clone need not be on; the commit's id."""
        git(self.clone, "add", "--all")
        git(self.clone, "commit", "--quiet", "--allow-empty", "--message", message)
        git(self.clone, "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}")
        return git(self.clone, "rev-parse", "HEAD").strip()

    def update(self) -> None:
        """Bring the clone to where the repository's main is."""
        git(self.clone, "pull", "--quiet", "--ff-only", "origin", "main")


class GitFailed(Exception):
    """The git command did not succeed; the message is what it said."""


def git(folder: Path, *arguments: str) -> str:
    """Run git without the user's configuration; its output. Raises `GitFailed`."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
    done = subprocess.run(  # noqa: S603 - arguments are ours
        ["git", *arguments],  # noqa: S607 - git is found on the PATH like make and python
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode:
        raise GitFailed(f"git {' '.join(arguments[:2])}: {done.stderr.strip()}")
    return done.stdout
