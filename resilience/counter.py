"""A counter many threads may add to without a lock."""

from __future__ import annotations

from itertools import count


class Counter:
    """Counts up by one; exact under any number of threads.

    `next()` on an `itertools.count` is one C call that no other thread can split, so no lock is needed and no
    convoy forms behind one. `add()` returns how many additions came before this one.
    """

    __slots__ = ("_count", "add")

    def __init__(self) -> None:
        self._count = count()
        self.add = self._count.__next__

    @property
    def value(self) -> int:
        """Additions so far. Read from the documented text form, the only way that does not add one itself."""
        return int(repr(self._count)[len("count(") : -1])
