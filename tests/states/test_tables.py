"""The tables of states, walked whole: every pair, every state, every word."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from orders import states as order_states
from orders.models import Order, OrderEvent
from orders.operations.steps import move
from orders.states import HOLDING, TERMINAL, OrderAction, OrderStatus
from orders.wording import EVENTS, STATUS_WORDS, WORDS, Situation, situation
from payments import dbtime
from payments import states as payment_states
from payments.operations import _EVENTS
from payments.states import OPEN, IllegalTransitionError, PaymentEvent, PaymentStatus, advance
from tests.world import World

ORDERS, PAYMENTS = order_states.TRANSITIONS, payment_states.TRANSITIONS


def reachable(table: Mapping[tuple[Any, Any], Any], start: Any) -> set[Any]:
    found, frontier = {start}, [start]
    while frontier:
        state = frontier.pop()
        for (source, _), target in table.items():
            if source == state and target not in found:
                found.add(target)
                frontier.append(target)
    return found


def test_every_order_state_is_reachable_and_a_terminal_one_has_no_exit() -> None:
    assert reachable(ORDERS, order_states.INITIAL) == set(OrderStatus)
    assert [pair for pair in ORDERS if pair[0] in TERMINAL] == []
    assert HOLDING.isdisjoint(TERMINAL)


def test_every_payment_state_is_reachable_and_the_end_of_each_is_settled() -> None:
    assert reachable(PAYMENTS, PaymentStatus.NEW) == set(PaymentStatus)
    for state in OPEN:
        assert reachable(PAYMENTS, state) & {
            PaymentStatus.SUCCEEDED,
            PaymentStatus.DECLINED,
            PaymentStatus.VOIDED,
        }


def test_a_holding_order_can_always_be_paid_cancelled_and_expired() -> None:
    for state in HOLDING:
        for action in (OrderAction.PAY, OrderAction.CANCEL, OrderAction.EXPIRE):
            assert (state, action) in ORDERS


def test_money_that_arrives_is_recorded_in_every_payment_state() -> None:
    for state in PaymentStatus:
        assert (state, PaymentEvent.SUCCEED) in PAYMENTS
        target = PAYMENTS[state, PaymentEvent.SUCCEED]
        assert target in {PaymentStatus.SUCCEEDED, PaymentStatus.REFUNDED}


def test_whatever_a_call_brings_can_be_written_down_in_every_payment_state() -> None:
    """A webhook may have brought certainty while the call was on its way."""
    for state, event in itertools.product(PaymentStatus, set(_EVENTS.values())):
        assert (state, event) in PAYMENTS
        if event in {PaymentEvent.NOT_SENT, PaymentEvent.LOST_SIGHT} and state not in OPEN:
            assert PAYMENTS[state, event] is state


@pytest.mark.parametrize(
    ("table", "states", "events"),
    [
        (ORDERS, OrderStatus, OrderAction),
        (PAYMENTS, PaymentStatus, PaymentEvent),
    ],
    ids=["orders", "payments"],
)
def test_every_pair_leads_where_the_table_says_or_is_refused(table: Any, states: Any, events: Any) -> None:
    for state, event in itertools.product(states, events):
        if (state, event) in table:
            assert advance(table, state, event) == table[state, event]
        else:
            with pytest.raises(IllegalTransitionError, match=state.value):
                advance(table, state, event)


def test_an_illegal_step_changes_nothing_in_the_database(world: World) -> None:
    from tests.world import Shopper

    Shopper().buy()
    illegal = [pair for pair in itertools.product(OrderStatus, OrderAction) if pair not in ORDERS]
    assert illegal
    with world.unaudited():
        for state, action in illegal:
            Order.objects.update(status=state)
            before = list(Order.objects.values()), list(OrderEvent.objects.values())
            with pytest.raises(IllegalTransitionError):
                move(Order.objects.get(), action, actor="test", now=dbtime.read())
            assert (list(Order.objects.values()), list(OrderEvent.objects.values())) == before


def test_every_state_and_situation_has_its_own_words_and_icon() -> None:
    pairs = itertools.product(OrderStatus, PaymentStatus, *[[False, True]] * 3)
    said = {
        situation(order, payment, expired=late, looked_into=asked, refused=no)
        for order, payment, late, asked, no in pairs
    }
    assert said == set(Situation) == set(WORDS)
    titles = [str(words.title) for words in WORDS.values()]
    assert len(set(titles)) == len(titles)
    assert set(STATUS_WORDS) == set(OrderStatus)
    assert {action.value for action in OrderAction} <= set(EVENTS)


def test_only_a_succeeded_payment_of_a_paid_order_is_called_paid() -> None:
    pairs = itertools.product(OrderStatus, PaymentStatus, *[[False, True]] * 3)
    for order, payment, late, asked, no in pairs:
        if situation(order, payment, expired=late, looked_into=asked, refused=no) is Situation.PAID:
            assert order is OrderStatus.PAID
