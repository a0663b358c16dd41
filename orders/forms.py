"""Forms: what people type is checked, redisplayed with a sentence when wrong, never corrected silently."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.conf import settings
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from orders.operations.carts import MAX_QUANTITY

LONGEST_SEARCH = 100
LONGEST_ADDRESS = 500

METHODS = [
    ("pm_card_visa", _("Card that works")),
    ("pm_card_chargeDeclined", _("Card that is declined")),
    ("pm_card_visa_chargeDeclinedInsufficientFunds", _("Card without enough funds")),
    ("pm_card_authenticationRequired", _("Card that needs a confirmation")),
]

_NO_ADDRESS = _("This does not look like an e-mail address.")
_QUANTITY = format_lazy(_("Please enter a whole number between 1 and {limit}."), limit=MAX_QUANTITY)


class PlainIntegerField(forms.CharField):
    """Digits and nothing else: "1.000", "1e3" or "1 000" are refused in every locale, never reinterpreted."""

    def __init__(self, *, low: int, high: int, message: Any) -> None:
        super().__init__()
        self._low, self._high, self._message = low, high, message

    def clean(self, value: object) -> int:
        text = str(value or "").strip()
        if not re.fullmatch(r"[0-9]{1,18}", text) or not self._low <= int(text) <= self._high:
            raise forms.ValidationError(str(self._message), code="invalid")
        return int(text)


class QuantityForm(forms.Form):
    sku = forms.RegexField(r"^[A-Za-z0-9._-]{1,40}$")
    quantity = PlainIntegerField(low=1, high=MAX_QUANTITY, message=_QUANTITY)


class SkuForm(forms.Form):
    sku = forms.RegexField(r"^[A-Za-z0-9._-]{1,40}$")


def _codes() -> list[tuple[str, str]]:
    return [(code, code) for code in settings.HOLDFAST.currencies]


class CurrencyForm(forms.Form):
    currency = forms.ChoiceField(choices=_codes)


class MethodForm(forms.Form):
    method = forms.ChoiceField(choices=METHODS)


class CheckoutForm(forms.Form):
    """The hidden fields say what the shopper saw; the amount is compared, never charged."""

    token = forms.UUIDField(widget=forms.HiddenInput)
    shown_total = PlainIntegerField(
        low=0,
        high=10**15,
        message=_("The amount of this form is not readable. Please check the total and confirm again."),
    )
    currency = forms.ChoiceField(choices=_codes, widget=forms.HiddenInput)
    basket = forms.CharField(max_length=64, required=False, widget=forms.HiddenInput)
    email = forms.EmailField(
        max_length=254,
        label=_("E-mail"),
        error_messages={
            "required": _("Please enter your e-mail address: we write to it when something changes."),
            "invalid": _NO_ADDRESS,
            "null_characters_not_allowed": _NO_ADDRESS,
        },
    )
    address = forms.CharField(
        max_length=LONGEST_ADDRESS,
        required=False,
        label=_("Delivery address"),
        error_messages={
            "max_length": _("This address is too long for a parcel's label."),
            "null_characters_not_allowed": _("This address has characters that cannot be printed."),
        },
    )
    member = forms.BooleanField(required=False, widget=forms.HiddenInput)
    method = forms.ChoiceField(
        choices=METHODS,
        label=_("Payment"),
        error_messages={
            "required": _("Please choose how to pay."),
            "invalid_choice": _("Please choose one of the ways to pay."),
        },
    )

    def clean_email(self) -> str:
        """Refuses what no mail server could be asked for, such as a part of a name beyond 63 letters."""
        address: str = self.cleaned_data["email"]
        try:
            address.rpartition("@")[2].encode("idna")
        except UnicodeError:
            raise forms.ValidationError(_NO_ADDRESS) from None
        return address
