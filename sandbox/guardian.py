"""Ends what a supervisor leaves behind when it is killed.

Run as `python -m sandbox.guardian FILE...` with a pipe as standard input. Lines `+PGID` and `-PGID` say which
process groups live. When the pipe closes, however that came about, the groups still listed get SIGKILL and
the files are removed. The parent-death signal alone would not do: it reaches children, not grandchildren.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line.startswith("+"):
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    for name in sys.argv[1:]:
        Path(name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
