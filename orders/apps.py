"""Composition root of the orders: who delivers which kind of message."""

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    name = "orders"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from orders import outbox, signals
        from orders.operations import check, notify, pay, undo
        from payments import incoming

        outbox.register(outbox.CHARGE, pay.deliver_charge)
        outbox.register(outbox.VOID, undo.deliver_void)
        outbox.register(outbox.REFUND, undo.deliver_refund)
        outbox.register(outbox.NOTIFY, notify.deliver_notice)
        outbox.register(outbox.CHECK, check.deliver_check)
        outbox.on_dead(check.dead_letter)
        incoming.register(check.event_arrived)
        signals.connect()
