"""The gateway's books: intents, refunds and kept answers, in memory and in a journal."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.intents import Wire
from sandbox.ledger import Entry, Journal


@dataclass(frozen=True)
class Kept:
    """The first answer to an idempotency key, and a digest of the parameters it belongs to."""

    fingerprint: str
    status: int
    body: str


@dataclass
class Change:
    """What one request changes; journaled as one line, so that a kill never separates money from key."""

    intent: Wire | None = None
    refund: Wire | None = None
    key: str | None = None
    kept: Kept | None = None
    event: str | None = None  # type of the webhook to send; not part of the books

    @property
    def empty(self) -> bool:
        return self.intent is None and self.refund is None and self.key is None


class Book:
    """Single writer: the gateway calls under its own lock. Reading from other threads is safe: objects are
    replaced as a whole and never changed."""

    def __init__(self, state: Path | None) -> None:
        self.intents: dict[str, Wire] = {}
        self.refunds: dict[str, Wire] = {}
        self.keys: dict[str, Kept] = {}
        self.requests: list[Entry] = []
        self._journal = Journal(state / "gateway.jsonl") if state else None
        if self._journal:
            self._restore(self._journal)

    def commit(self, change: Change) -> None:
        """Write, then apply."""
        if self._journal:
            kept = dataclasses.asdict(change.kept) if change.kept else None
            self._journal.write(
                {"intent": change.intent, "refund": change.refund, "key": change.key, "kept": kept}
            )
        self._apply(change)

    def note(self, entry: Entry) -> None:
        """Remember a request beyond a restart."""
        if self._journal:
            self._journal.write({"request": dataclasses.asdict(entry)})

    def clear(self) -> None:
        self.intents, self.refunds, self.keys, self.requests = {}, {}, {}, []
        if self._journal:
            self._journal.rewrite([])

    def refunded(self, intent: str) -> int:
        """How much of an intent has gone back, in its smallest unit."""
        return sum(item["amount"] for item in list(self.refunds.values()) if item["payment_intent"] == intent)

    def charge_count(self) -> int:
        return sum(intent["status"] == "succeeded" for intent in list(self.intents.values()))

    def report(self) -> dict[str, Any]:
        """Charges, refunds and intents as GET /_sandbox/ledger shows them."""
        back: dict[str, int] = {}
        for item in list(self.refunds.values()):
            back[item["payment_intent"]] = back.get(item["payment_intent"], 0) + item["amount"]
        everything = list(self.intents.values())
        return {
            "charges": [
                _charge(intent, back.get(intent["id"], 0))
                for intent in everything
                if intent["status"] == "succeeded"
            ],
            "refunds": [
                {
                    "idempotency_key": item["_key"],
                    "refund": item["id"],
                    "intent": item["payment_intent"],
                    "amount": item["amount"],
                }
                for item in list(self.refunds.values())
            ],
            "intents": [
                {key: value for key, value in intent.items() if not key.startswith("_")}
                for intent in everything
            ],
        }

    def _apply(self, change: Change) -> None:
        if change.intent:
            self.intents[change.intent["id"]] = change.intent
        if change.refund:
            self.refunds[change.refund["id"]] = change.refund
        if change.key and change.kept:
            self.keys[change.key] = change.kept

    def _restore(self, journal: Journal) -> None:
        """Read everything and write it back in short, since an intent's history is of no use any more."""
        seen: dict[int, Entry] = {}
        for record in journal.read():
            if "request" in record:
                entry = Entry(**record["request"])
                seen[entry.seq] = entry
            else:
                kept = Kept(**record["kept"]) if record["kept"] else None
                self._apply(Change(record["intent"], record["refund"], record["key"], kept))
        self.requests = [seen[number] for number in sorted(seen)]
        journal.rewrite(
            [{"intent": item, "refund": None, "key": None, "kept": None} for item in self.intents.values()]
            + [{"intent": None, "refund": item, "key": None, "kept": None} for item in self.refunds.values()]
            + [
                {"intent": None, "refund": None, "key": key, "kept": dataclasses.asdict(kept)}
                for key, kept in self.keys.items()
            ]
            + [{"request": dataclasses.asdict(entry)} for entry in self.requests]
        )


def _charge(intent: Wire, refunded: int) -> dict[str, Any]:
    return {
        "idempotency_key": intent["_key"],
        "intent": intent["id"],
        "amount": intent["amount_received"],
        "currency": intent["currency"],
        "reference": intent["metadata"].get("order_reference"),
        "status": intent["status"],
        "refunded": refunded,
        "created_ms": intent["_created_ms"],
    }
