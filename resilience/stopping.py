"""What a family of processes knows about its own end: one byte of memory shared since before the fork.

The first process writes, its children read: no signal has to reach them, none can be too early or too late.
"""

from __future__ import annotations

import mmap
from enum import IntEnum


class Stage(IntEnum):
    """How far the end has come. Only ever grows."""

    SERVING = 0
    DRAINING = 1  # whoever sends us work is being told to stop; work that still comes is done
    STOPPING = 2  # nothing new is taken; what was begun is finished
    NOW = 3


class SharedStage:
    """The stage of this process and of all it forks after this was made. Threads and processes may read at will.

    One process writes, the first of the family: a byte cannot be read half-written, but two writers could
    undo each other's step.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1)

    @property
    def now(self) -> Stage:
        """The present stage; costs no system call."""
        return Stage(self._memory[0])

    def advance(self, stage: Stage) -> None:
        """Moves on to `stage`; never back."""
        if stage > self.now:
            self._memory[0] = stage


FAMILY = SharedStage()
"""Of this process and its children."""
