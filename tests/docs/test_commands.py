"""Every command that a page shows is run, in the order of the page; pages written from the code are current."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest
from django.core.management import call_command, load_command_class
from django.utils import timezone

from orders.models import OutboxMessage
from payments.models import MoneyCheck
from sandbox.lab.__main__ import EXPERIMENTS
from sandbox.lab.__main__ import parser as lab_parser
from tests.world import World

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^ *```(?:console|sh)?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:manage\.py|make|python -m) [^`]+)`")
_PLACEHOLDER = re.compile(r"…|\[|\\?\||\b[A-Z]{2,}\b")
_SERVES = {"gateway", "catalog", "rates"}  # run until they are stopped: tests/sandbox/ does


def commands(page: Path) -> Iterator[list[str]]:
    """What the page would have somebody type, word by word; forms with a gap to fill in are none."""
    text = page.read_text()
    lines = [line.removeprefix("$ ") for block in _BLOCK.findall(text) for line in block.splitlines()]
    found = lines if "tutorial" in page.parts else [*lines, *_INLINE.findall(_BLOCK.sub("", text))]
    for line in found:
        line = line.strip()
        words = re.sub(r"^([A-Z_]+=\S+ )+", "", line).removeprefix(".venv/bin/").removeprefix("python ")
        if words.startswith(("manage.py ", "make ", "-m ")) and not _PLACEHOLDER.search(
            words.split(" --set ")[0]
        ):
            yield shlex.split(words, comments=True)


def by_program(program: str) -> list[tuple[str, list[str]]]:
    found = [(str(page.relative_to(ROOT)), words) for page in PAGES for words in commands(page)]
    return [(page, words[1:]) for page, words in found if words[0] == program and len(words) > 1]


@pytest.fixture
def wreckage(world: World) -> None:
    """What the commands of the pages speak of: some dead letters and a case of money."""
    world.audited = False
    now = timezone.now()
    for number in (17, 18):
        OutboxMessage.objects.create(
            id=number,
            kind="notify",
            destination="mail",
            dedup=f"dead:{number}",
            status="DEAD",
            due_at=now,
            available_at=now,
            created_at=now - timedelta(hours=1),
            finished_at=now,
        )
    MoneyCheck.objects.create(id=3, subject="pi_3", reason="charged twice", opened_at=now)


def test_every_command_of_manage_py_in_the_pages_runs(
    wreckage: None, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = 0
    for page, (name, *words) in by_program("manage.py"):
        try:
            if name == "lab":
                assert set(lab_parser().parse_args(words).name) <= set(EXPERIMENTS)
            elif name == "sandbox" and words[0] in _SERVES:
                load_command_class("sandbox", name).create_parser("manage.py", name).parse_args(words)
            elif name == "check":
                _check(words)
            else:
                call_command(name, *words)
        except (Exception, SystemExit) as error:
            pytest.fail(f"{page}: manage.py {name} {' '.join(words)}: {error!r}")
        ran += 1
    capsys.readouterr()
    assert ran > 30


def _check(words: list[str]) -> None:
    """In a process of its own: the browser tests have set a variable in this one that no deployment has."""
    clean = {name: value for name, value in os.environ.items() if name != "DJANGO_ALLOW_ASYNC_UNSAFE"}
    command = [sys.executable, "manage.py", "check", *words]
    subprocess.run(command, cwd=ROOT, env=clean, check=True, capture_output=True, timeout=60)


def test_every_target_of_make_in_the_pages_exists() -> None:
    targets = {words[0] for _, words in by_program("make")}
    assert {"demo", "test", "smoke", "lab"} <= targets
    done = subprocess.run(
        ["make", "-n", *sorted(targets)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_module_that_the_pages_run_exists() -> None:
    modules = {words[0] for _, words in by_program("-m")}
    assert modules
    assert not [module for module in modules if find_spec(module) is None]


def test_the_pages_of_settings_and_commands_are_written_from_the_code(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "config.reference", str(tmp_path)],
        cwd=ROOT,
        env=os.environ,
        check=True,
        timeout=60,
    )
    for name in ("settings.md", "commands.md"):
        assert (tmp_path / name).read_text() == (ROOT / "docs" / "reference" / name).read_text()


def test_links_between_the_pages_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken
