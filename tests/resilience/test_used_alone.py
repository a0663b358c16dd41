"""The library by itself: its example runs, and nothing of a framework is loaded for it."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "reference" / "resilience.md").read_text()


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )


def test_the_example_of_the_documentation_runs():
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = run(example)
    assert done.returncode == 0, done.stderr


def test_the_library_loads_no_framework_and_requests_only_for_http():
    done = run(
        "import sys, resilience.chain, resilience.registry, resilience.shedding, resilience.testing\n"
        "found = {'django', 'celery', 'requests', 'urllib3', 'config'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    assert done.returncode == 0, done.stderr
