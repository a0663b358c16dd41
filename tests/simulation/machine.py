"""Shoppers, workers, the clock, the bank and a failing gateway in any order Hypothesis thinks of.

The operations, PostgreSQL and the gateway's client are the real ones; time stands still between steps and
the gateway's books are in memory. Whoever dies does so at a named crash point. While a call is on its way,
others take their turns. After each step the invariants hold; once all is well again everything comes to an end.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from django.db import OperationalError, connection, connections
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orders import outbox
from orders.audit import LedgerCharge, audit
from orders.models import Cart, CartLine, Order, OutboxMessage, StockItem
from orders.operations import check, pay, place, sweep, undo
from orders.operations.quoting import PricedCart
from orders.operations.stock import SoldOutError
from orders.pricing import Money, PricedLine, Quote
from orders.queries import CartItem, CartView
from orders.states import HOLDING
from payments import clients, crashpoints, dbtime, incoming
from payments.states import IllegalTransitionError
from payments.webhooks import WebhookEvent
from resilience.deadline import Deadline
from tests.fakes import AUTHENTICATE, FAULTS, SLOW, UNDECIDED
from tests.simulation.books import wrong_in
from tests.simulation.ledger import LaggingStripe, build_gateway

VISA = "pm_card_visa"
METHODS = st.sampled_from([VISA, VISA, VISA, "pm_card_chargeDeclined", AUTHENTICATE, SLOW])
PAUSES = st.sampled_from([1, 6, 31, 61, 61, 400, 1000, 4000])
POINTS = st.sampled_from(sorted(crashpoints.POINTS))
UNITS = 12
SKU = "SIM-1"
OWNER = "owner"
_TABLES = (
    "orders_outboxmessage",
    "orders_orderevent",
    "orders_reservation",
    "orders_orderline",
    "orders_order",
    "orders_stockitem",
    "orders_cartline",
    "orders_cart",
    "orders_idempotencyrecord",
    "payments_payment",
    "payments_webhookreceipt",
    "payments_moneycheck",
    "payments_throttle",
)
steps: Counter[str] = Counter()
"""What all runs of this process did, by kind."""


class Died(BaseException):
    """A process ends here: nothing catches it, the open transaction is lost."""


class Violated(AssertionError):
    """An invariant does not hold."""


class Shop(RuleBasedStateMachine):
    """One run. `orders` holds the tokens of the forms and what became of them."""

    def __init__(self) -> None:
        super().__init__()
        with connection.cursor() as cursor:
            # History refuses to be deleted, except by a replica; emptying files would take ten times as long.
            deletes = "; ".join(f"DELETE FROM {table}" for table in _TABLES)
            cursor.execute(
                f"SET session_replication_role = replica; {deletes}; RESET session_replication_role"
            )
        StockItem.objects.create(sku=SKU, on_hand=UNITS)
        self.cart = Cart.objects.create(token=OWNER)
        self._clock = dbtime.stopped(datetime(2026, 3, 28, 22, 0, tzinfo=UTC))
        self.time = self._clock.__enter__()
        self.stripe = LaggingStripe(lambda: self.time.now)
        gateway = build_gateway(self.stripe)
        clients._built.update({True: gateway, False: gateway})
        self.gateway = gateway
        self.forms: list[place.Checkout] = []
        self.tokens: list[str] = []
        self.events = itertools.count(1)
        self.doom: str | None = None
        self.intruder: Callable[[], Any] | None = None
        self.leases: dict[int, tuple[Any, datetime]] = {}
        self.changed = True

    # --- how things are done --------------------------------------------------------------------------

    def act(self, name: str, action: Callable[[], Any]) -> Any:
        """One actor's turn; it may die at the point that is doomed."""
        steps[name] += 1
        self.changed = True
        try:
            with crashpoints.armed(self._at_point):
                return action()
        except Died:
            steps["died"] += 1
            return None

    def _at_point(self, name: str) -> None:
        if name == "expire.checked" and self.intruder:
            intruder, self.intruder = self.intruder, None
            self._in_another_session(intruder)
        if name == self.doom:
            self.doom = None
            raise Died(name)

    def _in_another_session(self, action: Callable[[], Any]) -> None:
        """Somebody else acts while this transaction is open; a lock that is held stops him at once."""

        def run() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '15ms'")
            try:
                action()
            except Died:
                steps["died"] += 1
            except OperationalError:
                steps["held up by a lock"] += 1
            finally:
                with connection.cursor() as cursor:
                    cursor.execute("RESET lock_timeout")
                connections.close_all()

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), "a session that cannot end"

    def worker_turn(self, turns: int = 1) -> None:
        for _ in range(turns):
            if self.breaker_open:
                return
            for lease in outbox.claim(outbox.PAYMENT, 1):
                self.leases[lease.message_id] = (lease.token, self.time.now + timedelta(seconds=30))
                gave_back = True
                try:
                    outbox.deliver(lease)
                except Died as death:
                    # Dead with the lease in its hand: nobody may touch the message until that ends.
                    gave_back = str(death).endswith(".committed")
                    raise
                finally:
                    if gave_back and self.leases.get(lease.message_id, (None,))[0] == lease.token:
                        del self.leases[lease.message_id]

    @property
    def breaker_open(self) -> bool:
        return self.gateway.chain.breaker.state.value != "closed"

    def pass_time(self, seconds: float) -> None:
        self.time.advance(seconds)
        if seconds >= 30:
            self.gateway.chain.breaker.reset()

    # --- what may happen ------------------------------------------------------------------------------

    @initialize(method=METHODS)
    def first_order(self, method: str) -> None:
        self.order(method, 1)

    @rule(method=METHODS, quantity=st.integers(1, 3))
    def order(self, method: str, quantity: int) -> None:
        form = place.Checkout(
            token=uuid4(),
            owner=OWNER,
            shown_minor=1000 * quantity,
            currency="EUR",
            email="ann@example.com",
            method=method,
            language="en",
            user_id=None,
        )
        self.forms.append(form)
        self.submit(form)

    def submit(self, form: place.Checkout) -> None:
        self._fill_basket(form)

        def check_out() -> None:
            try:
                token = place.check_out(form, _cart(form, self.cart.pk), Deadline.after_ms(5000))
            except SoldOutError:
                return
            if token not in self.tokens:
                self.tokens.append(token)

        self.act("order", check_out)

    def _fill_basket(self, form: place.Checkout) -> None:
        CartLine.objects.update_or_create(
            cart=self.cart,
            sku=SKU,
            defaults={
                "quantity": form.shown_minor // 1000,
                "names": {"en": "Thing"},
                "price_minor": 1000,
                "currency": "EUR",
                "priced_at": self.time.now,
            },
        )

    @rule(method=METHODS, fault=st.sampled_from(FAULTS))
    def order_in_trouble(self, method: str, fault: str) -> None:
        self.stripe.plan.append(fault)
        self.order(method, 1)

    @rule(method=METHODS, point=st.sampled_from(["place.committed", "charge.called", "settle.written"]))
    def order_whose_process_dies(self, method: str, point: str) -> None:
        self.doom = point
        self.order(method, 1)

    @rule(which=st.integers(0, 30))
    def submit_again(self, which: int) -> None:
        self.submit(self.forms[which % len(self.forms)])

    @rule(turns=st.integers(1, 3))
    def worker(self, turns: int) -> None:
        self.act("worker", lambda: self.worker_turn(turns))

    @rule(seconds=PAUSES, turns=st.integers(1, 3))
    def a_while_later_a_worker(self, seconds: int, turns: int) -> None:
        self.pass_time(seconds)
        self.act("worker", lambda: self.worker_turn(turns))

    @rule(fault=st.sampled_from(FAULTS), turns=st.integers(1, 2))
    def a_worker_in_trouble(self, fault: str, turns: int) -> None:
        self.pass_time(31)
        self.stripe.plan.append(fault)
        self.act("worker", lambda: self.worker_turn(turns))

    @rule(point=POINTS)
    def a_worker_that_dies(self, point: str) -> None:
        self.pass_time(31)
        self.doom = point
        self.act("worker", lambda: self.worker_turn(2))

    @rule(
        fault=st.sampled_from(["refuse", "lost", "lost_after", "error"]),
        point=st.sampled_from([None, "outbox.claimed", "charge.begun", "charge.called", "void.looked"]),
    )
    def a_worker_is_overtaken(self, fault: str, point: str | None) -> None:
        """One is so slow that its lease ends in its call; another takes over and perhaps dies of it."""

        def overtake() -> None:
            self.pass_time(31)
            self.doom = point
            self.act("meanwhile worker", lambda: self.worker_turn(1))
            self.doom = None
            self.stripe.plan.append(fault)

        self.pass_time(31)
        self.stripe.plan.clear()
        self.stripe.meanwhile, self.stripe.after = overtake, False
        self.act("worker", lambda: self.worker_turn(1))
        self.stripe.meanwhile = None

    @rule()
    def mailer(self) -> None:
        self.act("mail", lambda: [outbox.deliver(lease) for lease in outbox.claim(outbox.MAIL, 1)])

    @rule()
    def expire(self) -> None:
        self.act("expire", undo.expire_overdue)

    @rule()
    def expire_against_a_webhook(self) -> None:
        """The reserve of a payment without an answer runs out just when the gateway tells that it was taken."""
        self.stripe.plan.clear()
        self.stripe.always = None
        self.order_in_trouble(VISA, "lost_after")
        self.pass_time(890)
        self.act("expire", undo.expire_overdue)
        self.time.advance(12)
        self.intruder = self._gateway_tells
        self.act("expire", undo.expire_overdue)
        self.intruder = None

    @rule(fault=st.sampled_from(FAULTS))
    def a_webhook_overtakes_the_answer(self, fault: str) -> None:
        """A worker has learned what became of a charge while its shopper still waits; then the answer is none."""
        self.stripe.plan.clear()
        self.stripe.always = None
        self.stripe.after, self.stripe.meanwhile = True, self._gateway_tells
        self.order_in_trouble(VISA, fault)
        self.stripe.meanwhile = None

    def _gateway_tells(self) -> None:
        """A webhook of the newest payment, and the worker that asks what is true of it."""
        self._webhook(len(self.stripe.intents) - 1, again=False)
        self.worker_turn(3)

    @rule()
    def sweep_stuck(self) -> None:
        assert self.act("sweep", sweep.sweep) in (0, None), "something was stuck"

    @precondition(lambda self: self.tokens)
    @rule(which=st.integers(0, 30))
    def cancel(self, which: int) -> None:
        self.act("cancel", lambda: self._cancel(which))

    def _cancel(self, which: int) -> None:
        try:
            undo.cancel_by_token(self.tokens[which % len(self.tokens)], "shopper")
        except IllegalTransitionError:
            return

    @precondition(lambda self: self.tokens)
    @rule(which=st.integers(0, 30), method=METHODS)
    def pay_now(self, which: int, method: str) -> None:
        self.act("pay now", lambda: self._pay_now(which, method))

    def _pay_now(self, which: int, method: str) -> None:
        pay.pay_now(self.tokens[which % len(self.tokens)], method, Deadline.after_ms(5000))

    @rule(which=st.integers(0, 30), passes=st.booleans())
    def the_bank_has_decided(self, which: int, passes: bool) -> None:
        waiting = [i for i, wire in self.stripe.intents.items() if wire["status"] in UNDECIDED]
        if waiting:
            steps["bank"] += 1
            self.stripe.person_decides(waiting[which % len(waiting)], passes)
            self.changed = True

    @precondition(lambda self: self.tokens)
    @rule(which=st.integers(0, 30))
    def come_back_from_the_bank(self, which: int) -> None:
        self.act("back", lambda: check.look_again(self.tokens[which % len(self.tokens)]))

    @rule(which=st.integers(0, 30), again=st.booleans())
    def webhook(self, which: int, again: bool) -> None:
        self.act("webhook", lambda: self._webhook(which, again))

    def _webhook(self, which: int, again: bool) -> None:
        if not self.stripe.intents:
            return
        wire = list(self.stripe.intents.values())[which % len(self.stripe.intents)]
        event = f"evt_{which if again else 1000 + next(self.events)}"
        kind = "payment_intent.succeeded" if wire["status"] == "succeeded" else "payment_intent.updated"
        incoming.receive(WebhookEvent(event, kind, wire["id"], wire["metadata"]["order_reference"]))

    @rule(faults=st.lists(st.sampled_from([None, *FAULTS]), min_size=1, max_size=3))
    def trouble(self, faults: list[str | None]) -> None:
        self.stripe.plan.extend(faults)

    @rule(fault=st.sampled_from([None, None, *FAULTS]))
    def outage(self, fault: str | None) -> None:
        self.stripe.always = None if fault == "stored_error" else fault

    @rule(seconds=PAUSES)
    def wait(self, seconds: int) -> None:
        self.pass_time(seconds)

    @rule()
    def redrive(self) -> None:
        outbox.redrive([letter.id for letter in outbox.dead_letters()], "simulation")

    @rule(point=POINTS)
    def somebody_will_die(self, point: str) -> None:
        self.doom = point

    @rule(
        kinds=st.lists(
            st.sampled_from(["worker", "expire", "cancel", "pay now", "webhook", "wait", "bank", "sweep"]),
            min_size=1,
            max_size=3,
        ),
        pause=PAUSES,
        after=st.booleans(),
        which=st.integers(0, 30),
        fault=st.sampled_from([None, *FAULTS]),
        doom=st.sampled_from([None, "outbox.claimed", "charge.begun", "charge.called", "settle.written"]),
    )
    def a_slow_call(
        self, kinds: list[str], pause: int, after: bool, which: int, fault: str | None, doom: str | None
    ) -> None:
        """While the next request is on its way, others take their turns; then it may end badly."""
        others: dict[str, Callable[[], Any]] = {
            "worker": lambda: self.worker_turn(1),
            "expire": undo.expire_overdue,
            "cancel": lambda: self._cancel(which),
            "pay now": lambda: self._pay_now(which, VISA),
            "webhook": lambda: self._webhook(which, False),
            "wait": lambda: self.pass_time(pause),
            "bank": lambda: self.the_bank_has_decided(which, True),
            "sweep": sweep.sweep,
        }

        def meanwhile() -> None:
            self.doom = doom
            for kind in kinds:
                if self.tokens or kind in ("worker", "expire", "wait"):
                    self.act(f"meanwhile {kind}", others[kind])
            self.doom = None
            # The nested requests have used up what was planned; this is for the one that waited.
            self.stripe.plan.clear()
            if fault and not after:
                self.stripe.plan.append(fault)

        self.stripe.after, self.stripe.meanwhile = after, meanwhile
        if fault and after:
            self.stripe.plan.appendleft(fault)

    # --- what must be true ----------------------------------------------------------------------------

    @invariant()
    def the_books_are_right(self) -> None:
        if not self.changed:
            return
        self.changed = False
        if found := wrong_in(self.stripe.charges()):
            raise Violated("; ".join(found))

    @invariant()
    def a_lease_is_ended_by_its_holder_alone(self) -> None:
        for number, (token, until) in list(self.leases.items()):
            row = OutboxMessage.objects.filter(pk=number).values("status", "lease_token").first()
            if until <= self.time.now or row is None or row["status"] != "PENDING":
                del self.leases[number]
            elif row["lease_token"] != token:
                raise Violated(f"message {number} was taken from its holder")

    def _audit(self) -> list[Any]:
        books = [
            LedgerCharge(str(t.reference), t.amount, t.currency, t.refunded, t.intent)
            for t in self.stripe.charges()
        ]
        return audit(books)

    def teardown(self) -> None:
        try:
            if self.forms:
                self._come_to_an_end()
        finally:
            self._clock.__exit__(None, None, None)
            clients.reset()

    def _come_to_an_end(self) -> None:
        """All is well again: the gateway, the processes, the bank. Everything waiting must find its end."""
        self.stripe.always, self.stripe.meanwhile, self.doom = None, None, None
        self.stripe.plan.clear()
        for pause in (31, 61, 61, 400, 4000, *[61] * 20):
            unsettled = OutboxMessage.objects.filter(status__in=["PENDING", "DEAD"]).exists()
            if not unsettled and not Order.objects.filter(status__in=sorted(HOLDING)).exists():
                break
            self.pass_time(pause)
            for intent in [i for i, wire in self.stripe.intents.items() if wire["status"] == "processing"]:
                self.stripe.person_decides(intent, True)
            self.redrive()
            undo.expire_overdue()
            self.worker_turn(50)
            for lease in outbox.claim(outbox.MAIL, 100):
                outbox.deliver(lease)
        found = [f"{v.invariant} {v.text}" for v in self._audit()]
        found += [
            f"{o.number} is {o.status} for ever" for o in Order.objects.filter(status__in=sorted(HOLDING))
        ]
        left = OutboxMessage.objects.filter(status__in=["PENDING", "DEAD"])
        found += [f"{m.kind} is {m.status} for ever: {m.last_error}" for m in left]
        for order in Order.objects.all():
            kept = sum(
                1
                for t in self.stripe.charges()
                if str(t.reference).startswith(order.number) and not t.refunded
            )
            if kept != (order.status == "PAID"):
                found.append(f"{order.number} is {order.status} with {kept} charges at the end")
        if found:
            raise Violated("; ".join(found))


def _cart(form: place.Checkout, number: int) -> CartView:
    quantity = form.shown_minor // 1000
    item = CartItem(0, SKU, quantity, {"en": "Thing"}, 1000, "EUR", dbtime.read())
    return CartView(number, form.owner, "EUR", (item,), dbtime.read())


def quote_cart(cart: CartView, currency: str, deadline: Deadline) -> PricedCart:
    """In place of the catalog, which is not the subject: every unit costs ten euros."""
    quantity = cart.lines[0].quantity
    total = Money(1000 * quantity, currency)
    line = PricedLine(SKU, "Thing", quantity, Money(1000, currency), total, None)
    return PricedCart(Quote((line,), total, None, None), {}, (), total.minor)
