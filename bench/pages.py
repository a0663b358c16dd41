"""`python -m bench.pages [DIRECTORY]`: how long the server takes for each page, asked from outside.

A whole demo shop of real processes on free ports, healthy neighbours, one person at a time over one kept connection.
The floor is the liveness probe in the same run: the same socket, server and thread, without a shop behind it.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sandbox.demo import Demo
from sandbox.shopper import Shopper

ROUNDS = 60
PAGES = (
    "catalog",
    "search",
    "add to basket",
    "basket",
    "checkout, the form",
    "checkout, order and payment",
    "order",
)
FLOOR = "liveness probe"


def _one_visit(base: str, took: dict[str, list[float]]) -> None:
    """A person from the shelf to the paid order."""
    person = Shopper(base)
    person.get("/cart/")

    def note(page: str, call: Callable[[], object]) -> None:
        begun = time.perf_counter()
        call()
        took[page].append((time.perf_counter() - begun) * 1000)

    note(FLOOR, lambda: person.get("/health/live/"))
    note("catalog", lambda: person.get("/"))
    note("search", lambda: person.get("/?q=rope"))
    note("add to basket", lambda: person.post("/cart/add/", sku="ROPE-12", quantity=1))
    note("basket", lambda: person.get("/cart/"))
    note("checkout, the form", lambda: person.get("/checkout/"))
    form = person.fill_basket("ROPE-12")
    begun = time.perf_counter()
    order = person.submit(form).order
    took["checkout, order and payment"].append((time.perf_counter() - begun) * 1000)
    assert order is not None
    note("order", lambda: person.get(order))


def measure() -> list[dict[str, object]]:
    """Median and 95th percentile of each page, in milliseconds."""
    took: dict[str, list[float]] = {page: [] for page in (FLOOR, *PAGES)}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        Path(home).chmod(0o711)  # run by root, PostgreSQL is another user's, who has to pass through
        demo = Demo(Path(home))
        try:
            demo.start()
            _one_visit(demo.url, {page: [] for page in took})
            for _ in range(ROUNDS):
                _one_visit(demo.url, took)
        finally:
            demo.stop()
    floor = statistics.median(took[FLOOR])
    return [
        {
            "page": page,
            "median_ms": round(statistics.median(times), 1),
            "p95_ms": round(statistics.quantiles(times, n=20)[-1], 1),
            "times_the_floor": round(statistics.median(times) / floor, 1),
        }
        for page, times in took.items()
    ]


def main() -> None:
    """Prints the table; with a directory also writes pages.md and pages.json there."""
    rows = measure()
    lines = ["| page | median ms | p95 ms | × the floor |", "|---|---|---|---|"]
    lines += [
        f"| {row['page']} | {row['median_ms']} | {row['p95_ms']} | {row['times_the_floor']} |" for row in rows
    ]
    print("\n".join(lines))
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        title = f"# What a page takes\nWritten by `make bench`. {' '.join(__doc__.split(chr(10) * 2, 1)[1].split())}\n"
        more = f"Times of {ROUNDS} visits on the machine that ran it; the last column travels.\n"
        (folder / "pages.md").write_text("\n".join([title, more, *lines]) + "\n")
        (folder / "pages.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
