"""The table of promises in the documentation: complete, and every test it names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "reference" / "resilience-semantics.md").read_text()
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
}


def test_the_table_has_all_28_promises_each_with_a_test():
    rows = re.findall(r"^\| (\d+) \|.*`test_\w+`.*\|$", PAGE, re.MULTILINE)
    assert [int(number) for number in rows] == list(range(1, 29))


def test_every_test_named_in_the_documentation_exists():
    pages = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    named = set(re.findall(r"`(test_\w+)`", "\n".join(pages)))
    assert named - TESTS == set()
