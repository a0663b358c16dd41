"""How the web server runs and ends."""

from __future__ import annotations

from dataclasses import dataclass

from config.environment import Reader


@dataclass(frozen=True)
class ServerSettings:
    """One web server. Seconds.

    drain_seconds: how long a stopping server goes on serving while it says that it is not ready, so longer than
    a load balancer takes to stop sending. grace_seconds: how long requests already begun may then take.
    stop_seconds: after how long whoever stops us loses patience and kills.
    """

    host: str
    port: int
    workers: int
    drain_seconds: float
    grace_seconds: int
    stop_seconds: int


def read_server(env: Reader) -> ServerSettings:
    """The web server's settings. Problems are gathered in `env`."""
    server = ServerSettings(
        host=env.text("HOST", "127.0.0.1"),
        port=env.integer("PORT", 8000, high=65_535),
        workers=env.integer("WEB_WORKERS", 2, low=1, high=256),
        drain_seconds=float(env.number("DRAIN_SECONDS", "5", high="600")),
        grace_seconds=env.integer("GRACE_SECONDS", 20, low=1, high=3600),
        stop_seconds=env.integer("STOP_SECONDS", 30, low=1, high=4500),
    )
    if server.drain_seconds + server.grace_seconds >= server.stop_seconds:
        env.problems.append(
            f"DRAIN_SECONDS ({server.drain_seconds:g}) and GRACE_SECONDS ({server.grace_seconds}) together must be "
            f"less than STOP_SECONDS ({server.stop_seconds}), after which the orchestrator kills."
        )
    return server
