"""`python -m bench.oscar HOST PORT USER DATABASE`: the same order placed by django-oscar, beside ours.

In the environment of the peers, on the database of the run. Prints one JSON object. The order is that of Oscar's own
checkout after its forms: address, order with two lines and stock allocated, payment source and event, basket closed.
"""

from __future__ import annotations

import json
import logging
import statistics
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

_PARTS = (
    "analytics checkout address shipping catalogue catalogue.reviews communication partner basket payment offer order"
    " customer search voucher wishlists dashboard dashboard.reports dashboard.users dashboard.orders"
    " dashboard.catalogue dashboard.offers dashboard.partners dashboard.pages dashboard.ranges dashboard.reviews"
    " dashboard.vouchers dashboard.communications dashboard.shipping"
)
_DJANGO = "admin auth contenttypes sessions messages staticfiles sites flatpages"
_OTHERS = ("widget_tweaks", "haystack", "treebeard", "sorl.thumbnail", "django_tables2")
ROUNDS, PER_ROUND = 5, 20


def _config(part: str) -> str:
    """Oscar's name for the configuration of one of its apps: `dashboard.users` is UsersDashboardConfig."""
    words = [word.capitalize() for word in part.split(".")]
    name = "".join(reversed(words) if words[0] == "Dashboard" else words)
    return f"oscar.apps.{part}.apps.{name}Config"


def _set_up(host: str, port: str, user: str, database: str) -> None:
    import django
    from django.conf import settings
    from oscar import defaults

    server = {"HOST": host, "PORT": port, "USER": user, "NAME": database, "CONN_MAX_AGE": None}
    settings.configure(
        SECRET_KEY="bench",  # noqa: S106  # signs nothing
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **server}},
        INSTALLED_APPS=[
            *(f"django.contrib.{name}" for name in _DJANGO.split()),
            "oscar.config.Shop",
            *(_config(part) for part in _PARTS.split()),
            *_OTHERS,
        ],
        USE_TZ=True,
        SITE_ID=1,
        STATIC_URL="/static/",
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        EMAIL_BACKEND="django.core.mail.backends.locmem.EmailBackend",
        HAYSTACK_CONNECTIONS={"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}},
        **{name: getattr(defaults, name) for name in dir(defaults) if name.startswith("OSCAR_")},
    )
    logging.disable(logging.CRITICAL)
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


class _Shop:
    """Two products, a country, and the classes that Oscar's checkout is made of."""

    def __init__(self) -> None:
        from oscar.core.loading import get_class, get_model
        from oscar.test import factories

        self.model, self.get = get_model, get_class
        country = get_model("address", "Country")
        self.country = country.objects.create(iso_3166_1_a2="DE", printable_name="Germany", name="GERMANY")
        self.source_type = get_model("payment", "SourceType").objects.create(name="Card")
        self.event_type = get_model("order", "PaymentEventType").objects.create(name="Settled")
        self.products = [factories.create_product() for _ in range(2)]
        for product in self.products:
            factories.create_stockrecord(product, price=Decimal("15.00"), num_in_stock=100_000_000)

    def basket(self) -> Any:
        basket = self.model("basket", "Basket").objects.create()
        basket.strategy = self.get("partner.strategy", "Default")()
        for product in self.products:
            basket.add_product(product, 1)
        return basket

    def place(self, basket: Any) -> None:
        method = self.get("shipping.methods", "Free")()
        shipping = method.calculate(basket)
        total = self.get("checkout.calculators", "OrderTotalCalculator")().calculate(basket, shipping)
        address = self.model("order", "ShippingAddress")(
            first_name="Ann",
            last_name="Other",
            line1="Quay 1",
            line4="Harbour",
            postcode="10115",
            country=self.country,
        )
        address.save()
        order = self.get("order.utils", "OrderCreator")().place_order(
            basket=basket,
            total=total,
            shipping_method=method,
            shipping_charge=shipping,
            shipping_address=address,
            order_number=self.get("order.utils", "OrderNumberGenerator")().order_number(basket),
        )
        self._pay(order, total.incl_tax)
        basket.submit()

    def _pay(self, order: Any, amount: Decimal) -> None:
        """What a paid order has in Oscar's books; no gateway is asked."""
        source = self.model("payment", "Source").objects.create(order=order, source_type=self.source_type)
        source.allocate(amount)
        source.debit(amount)
        event = self.model("order", "PaymentEvent").objects.create(
            order=order, event_type=self.event_type, amount=amount
        )
        for line in order.lines.all():
            self.model("order", "PaymentEventQuantity").objects.create(
                event=event, line=line, quantity=line.quantity
            )


def _seconds(place: Callable[[Any], None], basket: Any) -> float:
    begun = time.perf_counter()
    place(basket)
    return time.perf_counter() - begun


def main() -> None:
    _set_up(*sys.argv[1:5])
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    shop = _Shop()
    shop.place(shop.basket())
    ready = shop.basket()
    with CaptureQueriesContext(connection) as captured:
        shop.place(ready)
    taken = []
    for _ in range(ROUNDS):
        baskets = [shop.basket() for _ in range(PER_ROUND)]
        taken.append(statistics.median(_seconds(shop.place, basket) for basket in baskets))
    seconds = statistics.median(taken)
    print(json.dumps({"per_second": 1 / seconds, "ms": 1000 * seconds, "statements": len(captured)}))


if __name__ == "__main__":
    main()
