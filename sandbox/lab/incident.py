"""The report of an incident, for people who do not read logs: what happened, what it cost, what it did not."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from sandbox.lab.plot import lines, strip

_COLOURS = {
    "NORMAL": "#17603f",
    "DEGRADED": "#98231c",
    "RECOVERING": "#8a5a10",
    "down": "#98231c",
    "up": "#17603f",
}


@dataclass(frozen=True)
class Facts:
    """One incident as it was measured. Times are our seconds since the shopping began; `faster` makes them the
    story's. `answers`: (when, status, seconds). `modes`: when which mode began."""

    faster: int
    began: float
    healed: float
    drained: float | None
    told: Sequence[tuple[float, str]]
    modes: Sequence[tuple[float, str]]
    waiting: Sequence[tuple[float, float]]
    paid: Sequence[tuple[float, float]]
    orders: int
    statuses: Mapping[str, int]
    at_once: int
    replayed: Sequence[float]
    deferred_minor: int
    answers: Sequence[tuple[float, int, float]]
    twice: int
    two_orders: int
    turned_away: int
    charges: int
    charged_twice: int
    violations: Sequence[str]

    def story(self, seconds: float) -> float:
        """Our seconds as the story's."""
        return seconds * self.faster

    def minute(self, at: float) -> float:
        """A moment in minutes of the story since the outage began; negative before."""
        return self.story(at - self.began) / 60

    def degraded_after(self) -> float | None:
        """Story's seconds from the outage to degraded mode."""
        found = [at for at, mode in self.modes if mode == "DEGRADED" and at >= self.began]
        return self.story(found[0] - self.began) if found else None

    def busiest_second(self) -> int:
        """The most payments taken later within one second of ours after the recovery."""
        after = [at for at in self.replayed if at >= self.healed]
        return max((sum(at <= other < at + 1 for other in after) for at in after), default=0)

    def shoppers(self) -> int:
        """Everybody who came; who confirms twice is one."""
        return len(self.answers) - self.twice + self.turned_away

    def during(self) -> list[int]:
        """The status of each answer to an order while the gateway was down."""
        return [status for at, status, _ in self.answers if self.began <= at < self.healed]

    def heard(self) -> str:
        """The same for people."""
        found = Counter(self.during())
        accepted, refused = found.pop(302, 0), found.pop(503, 0)
        other = found.total()
        return (
            f"While the gateway was down, {accepted} of {accepted + refused + other} confirmations were answered with"
            f" an order, {refused} with a refusal that kept the basket, {other} otherwise"
        )

    def p99_ms(self) -> float:
        """Of the answers while the gateway hung."""
        taken = sorted(took for at, _, took in self.answers if self.began <= at < self.healed)
        return 1000 * taken[int(0.99 * (len(taken) - 1))] if taken else 0.0


def draw(facts: Facts) -> dict[str, str]:
    """The two plots: what waited and was paid, and the shop's mode. Minutes of the story since the shopping began."""
    scale = facts.faster / 60
    down = (facts.began * scale, facts.healed * scale, "gateway down")
    curves = {
        "charges waiting": [(at * scale, count) for at, count in facts.waiting],
        "orders paid": [(at * scale, count) for at, count in facts.paid],
    }
    end = max(at for at, _ in facts.waiting)
    starts = [*facts.modes, (end, "")]
    modes = [(begin * scale, until * scale, mode) for (begin, mode), (until, _) in itertools.pairwise(starts)]
    gateway = [(0.0, down[0], "up"), (down[0], down[1], "down"), (down[1], end * scale, "up")]
    return {
        "outage": lines(
            "Orders during ten minutes without a gateway", "minutes", "orders", curves, spans=[down]
        ),
        "outage-mode": strip(
            "The shop's mode, under the gateway", "minutes", [("gateway", gateway), ("shop", modes)], _COLOURS
        ),
    }


_STYLE = """
:root { color-scheme: light dark; --paper:#f6f4ee; --sheet:#fffefb; --ink:#17262d; --soft:#51626a; --line:#d8d6cb;
  --good:#17603f; --bad:#98231c }
@media (prefers-color-scheme: dark) { :root { --paper:#0f191e; --sheet:#16242b; --ink:#e7eef0; --soft:#a5b5bb;
  --line:#2d3f47; --good:#8bdcb0; --bad:#ffaaa0 } }
body { margin:0 auto; max-width:52rem; padding:2rem 1rem; background:var(--paper); color:var(--ink);
  font:1rem/1.55 system-ui,sans-serif }
h1, h2 { font-family:Georgia,serif; line-height:1.2 } h2 { margin-top:2rem }
.figures { display:grid; grid-template-columns:repeat(auto-fit,minmax(11rem,1fr)); gap:.75rem; margin:1.25rem 0;
  padding:0; list-style:none }
.figures li { background:var(--sheet); border:1px solid var(--line); border-radius:.6rem; padding:.8rem 1rem;
  color:var(--soft) }
.figures b { display:block; font-size:1.7rem; color:var(--ink) }
.figures .good b { color:var(--good) } .figures .bad b { color:var(--bad) }
table { border-collapse:collapse; width:100% }
td, th { text-align:left; padding:.35rem .6rem; border-bottom:1px solid var(--line); vertical-align:top }
td:first-child { white-space:nowrap; color:var(--soft) }
svg { width:100%; height:auto } footer { color:var(--soft); margin-top:2rem }
"""


def _cells(facts: Facts) -> str:
    """The figures at the top."""
    minutes = facts.story(facts.healed - facts.began) / 60
    lost = facts.orders - facts.statuses.get("PAID", 0)
    drained = "not yet"
    if facts.drained is not None:
        drained = f"{facts.story(facts.drained - facts.healed) / 60:.0f} min"
    figures = (
        (f"{minutes:.0f} min", "the payment gateway was down", ""),
        (str(len(facts.replayed)), "orders accepted unpaid and paid later", "good"),
        (f"{facts.deferred_minor / 100:,.2f} €", "is what these were worth", "good"),
        (str(lost), "orders lost", "bad" if lost else "good"),
        (str(facts.charged_twice), "customers charged twice", "bad" if facts.charged_twice else "good"),
        (drained, "until everything was paid, after the gateway was back", ""),
    )
    return "".join(
        f'<li class="{kind}"><b>{escape(value)}</b>{escape(what)}</li>' for value, what, kind in figures
    )


def _audit(facts: Facts) -> str:
    if facts.violations:
        return "The audit found: " + "; ".join(facts.violations)
    return "The audit compared our books with the gateway's and found nothing: every paid order has exactly one charge."


def page(facts: Facts, plots: Mapping[str, str]) -> str:
    """A page of its own, without anything to load."""
    minutes = facts.story(facts.healed - facts.began) / 60
    rows = "".join(
        f"<tr><td>{facts.minute(at):+.1f} min</td><td>{escape(what)}</td></tr>"
        for at, what in sorted(facts.told)
    )
    return f"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>Incident report</title><style>{_STYLE}</style>
<h1>Incident report: {minutes:.0f} minutes without a payment gateway</h1>
<p>The gateway stopped answering. The shop went on taking orders, told every customer the truth about the payment, and
took the money when the gateway was back.</p>
<ul class="figures">{_cells(facts)}</ul>
<h2>What customers saw</h2>
<p>{escape(facts.heard())}; 99 of 100 answers came within {facts.p99_ms():.0f} ms. First: <q>accepted, payment is
being confirmed, please do not pay again</q>. Once the shop knew: <q>accepted, payment will be taken within the
hour</q>, said on every page before the button was pressed. {facts.twice} customers pressed it twice;
{facts.two_orders} of them got two orders.</p>
<h2>What waited, and what was paid</h2>
{plots["outage"]}
<h2>How the shop took orders</h2>
{plots["outage-mode"]}
<h2>In order</h2>
<table><tr><th>When</th><th>What</th></tr>{rows}</table>
<h2>What is owed to nobody</h2>
<p>{escape(_audit(facts))} {facts.statuses.get("CANCELLED", 0)} reserves ran out.</p>
<h2>What was agreed before, and held</h2>
<p>How many orders may be unpaid, up to which sum, and for how long goods are kept for them, is decided by the business
before an incident, not during one: <code>DEGRADED_MAX_UNPAID_ORDERS</code>, <code>DEGRADED_MAX_UNPAID_TOTAL</code>,
<code>DEGRADED_RESERVE_SECONDS</code>.</p>
<footer>Measured by <code>manage.py lab outage</code> on a clock {facts.faster} times as fast: each order here stands
for {facts.faster} of the story, and a second in the words of a record for {facts.faster}.</footer></html>
"""
