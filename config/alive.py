"""Whether a worker or beat is well, for an orchestrator: `python -m config.alive NAME [SECONDS]`, exit code 0 or 1.

Looks at nothing but the age of the file that the process touches while it is well, one for each name and host: others
that share the folder say nothing of this one. Imports nothing of the shop.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

FOLDER = "alive"
WELL_SECONDS = 10.0


def file_of(home: Path, name: str) -> Path:
    """What a process of this name on this host touches."""
    return home / FOLDER / f"{name}@{socket.gethostname()}"


def seconds_since(home: Path, name: str) -> float:
    """Since the process last said that it is well; infinite if it never did."""
    try:
        return time.time() - file_of(home, name).stat().st_mtime
    except OSError:
        return float("inf")


def main(arguments: list[str]) -> int:
    name, *rest = arguments
    home = Path(os.environ.get("HOLDFAST_HOME") or Path(__file__).resolve().parent.parent / ".holdfast")
    return int(seconds_since(home, name) > float(rest[0] if rest else WELL_SECONDS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
