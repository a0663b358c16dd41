"""Chains by name, for whoever shows, measures or controls all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from resilience.chain import Chain


class Registry:
    """Named chains of a process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chains: dict[str, Chain] = {}

    def register(self, chain: Chain) -> Chain:
        """Keep `chain` under its name and return it. Raises ValueError when the name is taken by another."""
        with self._lock:
            known = self._chains.setdefault(chain.name, chain)
        if known is not chain:
            raise ValueError(f"a chain named {chain.name!r} is registered already")
        return chain

    def get_or_create(self, name: str, make: Callable[[], Chain]) -> Chain:
        """The chain of that name, made at its first use; all threads get the same one."""
        chain = self._chains.get(name)
        if chain is None:
            fresh = make()
            with self._lock:
                chain = self._chains.setdefault(name, fresh)
        return chain

    def get(self, name: str) -> Chain:
        """Raises KeyError when there is none."""
        return self._chains[name]

    def all(self) -> tuple[Chain, ...]:
        """All of them, in the order of their registration."""
        with self._lock:
            return tuple(self._chains.values())


CHAINS = Registry()
"""The registry of this process. Chains do not enter by themselves: whoever builds one decides."""
