"""The shipped commands that bring up the whole shop."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.processes.harness import ROOT

pytestmark = pytest.mark.process
# What the suite sets for itself; a person who types `make smoke` has none of it.
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR")


def test_the_smoke_run_finds_nothing_lost_doubled_or_oversold() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sandbox.smoke"],
        cwd=ROOT,
        env={name: os.environ[name] for name in _KEPT if name in os.environ},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("charged twice", "lost", "oversold"):
        assert [line.split()[-1] for line in done.stdout.splitlines() if line.startswith(name)] == ["0"]
