"""`python -m bench.checkout [DIRECTORY]`: what one order costs, beside floors that only write it.

In one run on an embedded PostgreSQL, durable as in production; the neighbours are processes that answer at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from bench import checkout_inside, checkout_outside
from bench.checkout_inside import Inside
from bench.checkout_outside import BUDGET_MS, Outside, Weight


def _inside() -> tuple[Inside, dict[str, float] | None]:
    """Servers, Django, measurement; and django-oscar's figures on the same server, if it is installed."""
    from sandbox.control import start_neighbour
    from sandbox.embedded import start_postgres

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        Path(home).chmod(0o711)  # run by root, PostgreSQL is another user's, who has to pass through
        server = start_postgres(Path(home))
        try:
            with ExitStack() as last:
                names = ("gateway", "catalog", "rates")
                urls = [last.enter_context(start_neighbour(name)).url for name in names]
                _set_up(server.url, home, *urls)
                return checkout_inside.measure(_say), _oscar(server.url)
        finally:
            server.stop()


def _oscar(url: str) -> dict[str, float] | None:
    """In the environment of the peers, which is not ours: it must not bring its versions here."""
    peers = Path(__file__).resolve().parent.parent / ".venv-bench" / "bin" / "python"
    if not peers.exists():
        return None
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE oscar")
        info = connection.info
        words = [info.host, str(info.port), info.user, "oscar"]
    done = subprocess.run(  # noqa: S603
        [peers, "-m", "bench.oscar", *words], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        _say(f"django-oscar did not work: {done.stderr.strip()[-300:]}")
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _set_up(database: str, home: str, gateway: str, catalog: str, rates: str) -> None:
    os.environ.update(
        {
            "HOLDFAST_ENV": "test",
            "SECRET_KEY": "bench",
            "DATABASE_URL": database,
            "PAYMENT_API_KEY": "sk_test_bench",
        }
        | {
            "BROKER_URL": "redis://127.0.0.1:9/0",
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "HOLDFAST_HOME": home,
        }
        | {"PAYMENT_URL": gateway, "CATALOG_URL": catalog, "RATES_URL": rates, "PAYMENT_RATE_LIMIT": "10000"}
    )
    import logging

    import django
    from django.core.management import call_command

    django.setup()
    logging.disable(logging.CRITICAL)
    call_command("migrate", verbosity=0)
    with open(os.devnull, "w") as nowhere:
        call_command("seed_demo", stdout=nowhere)


def _goals(
    inside: Inside, outside: list[Outside], oscar: dict[str, float] | None
) -> list[tuple[str, float, str, bool]]:
    hung = [one for one in outside if one.name.startswith("gateway")]
    share = inside.checkout_per_second / inside.orm_per_second
    growth = inside.growth[-1][1] / inside.growth[0][1]
    goals = [
        ("checkouts a second ÷ ORM floor, one process", share, "≥ 0.5", share >= 0.5),
        ("statements of an accepted order", float(inside.statements), "≤ 12", inside.statements <= 12),
        ("cost with 1,000,000 orders ÷ with 1,000", growth, "≤ 1.3", growth <= 1.3),
    ]
    if oscar:
        ahead = inside.checkout_per_second / oscar["per_second"]
        goals.append(
            ("checkouts a second, whole request ÷ django-oscar's placing alone", ahead, "> 1", ahead > 1)
        )
    for one in hung:
        limit = BUDGET_MS + 50
        name = f"p99 with a hung gateway at 40/s, {one.processes} web process{'es' * (one.processes > 1)}, ms"
        goals.append((name, one.p99_ms, f"≤ {limit}", one.p99_ms <= limit))
    return goals


def _page(inside: Inside, outside: list[Outside], weight: Weight, oscar: dict[str, float] | None) -> str:
    lines = [
        "# What an order costs",
        "",
        "Written by `python -m bench.checkout docs/reference`, a part of `make bench`. Times belong to the machine that"
        " ran it, ratios travel. The floors write an order, two lines, a stock row, a payment and a message, and do"
        f" nothing else. Load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; what is"
        " measured over sockets shares them with its own crowd, so its times are the worse for every other load.",
        "",
        "| ratio | measured | goal | |",
        "|---|---|---|---|",
        *(
            f"| {what} | {value:.2f} | {goal} | {'reached' if good else '**missed**'} |"
            for what, value, goal, good in _goals(inside, outside, oscar)
        ),
        "",
        *_inside_lines(inside, oscar),
        "",
        "## Over sockets",
        "",
        "| | web processes | orders a second | p50 ms | p99 ms | answers |",
        "|---|---|---|---|---|---|",
        *(_outside_line(one) for one in outside),
        "",
        f"A web process weighs {weight.web:.0f} MB, a worker {weight.worker:.0f} MB (proportional set size).",
        "",
    ]
    return "\n".join(lines)


def _inside_lines(inside: Inside, oscar: dict[str, float] | None) -> list[str]:
    beside = []
    if oscar:
        name = f"django-oscar's placing of a ready basket, {oscar['statements']:.0f} statements"
        beside = [f"| {name} | {oscar['per_second']:.0f} |"]
    return [
        "## One process, one thread",
        "",
        "| | a second |",
        "|---|---|",
        f"| checkout, the whole request, paid, {inside.statements} statements | {inside.checkout_per_second:.0f} |",
        f"| ORM floor | {inside.orm_per_second:.0f} |",
        f"| SQL floor, prepared statements | {inside.sql_per_second:.0f} |",
        *beside,
        "",
        "| where a checkout's time goes | ms |",
        "|---|---|",
        *(f"| {part} | {ms:.1f} |" for part, ms in inside.parts_ms.items()),
        "",
        "| whose code, by a profile | own time, % |",
        "|---|---|",
        *(f"| {name} | {share:.0f} |" for name, share in inside.whose),
        "",
        _limits(inside),
        "",
        "| orders in the tables | ms of a checkout |",
        "|---|---|",
        *(f"| {size:,} | {ms:.1f} |" for size, ms in inside.growth),
    ]


def _limits(inside: Inside) -> str:
    """What keeps it from being faster, in a sentence."""
    sql, calls, python = (inside.parts_ms[part] for part in ("SQL", "calls of neighbours", "Python"))
    whole = sql + calls + python
    return (
        f"Of {whole:.0f} ms the neighbours have {calls:.0f} and statements {sql:.0f}, about half of that in the driver."
        f" The floor has 5 statements and one commit, a checkout {inside.statements} and two commits that reach the"
        " disk: the intent before the call, its outcome after it. It also reads the basket, the mode and the stock,"
        " keeps the form's token, reserves and writes the timeline. Two calls over HTTP and two durable commits alone"
        " take as long as the floor; what they hold was put before the ratio."
    )


def _outside_line(one: Outside) -> str:
    heard = ", ".join(f"{count} × {status}" for status, count in sorted(one.answers.items()))
    return f"| {one.name} | {one.processes} | {one.per_second:.0f} | {one.p50_ms:.0f} | {one.p99_ms:.0f} | {heard} |"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Prints the page; with a directory also writes checkout.md and checkout.json there."""
    outside, weight = checkout_outside.measure(_say)
    inside, oscar = _inside()
    text = _page(inside, outside, weight, oscar)
    print(text)
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "checkout.md").write_text(text, encoding="utf-8")
        figures = {
            "inside": asdict(inside),
            "outside": [asdict(one) for one in outside],
            "weight_mb": asdict(weight),
        }
        (folder / "checkout.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
