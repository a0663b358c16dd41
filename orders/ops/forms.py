"""The forms of the operations room: each asks for a reason and a confirmation, and says what it showed."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

LONGEST_REASON = 500
LONGEST_SECONDS = 604_800


class StepForm(forms.Form):
    """Any step. `seen` is the version of its subject that the page showed."""

    reason = forms.CharField(
        max_length=LONGEST_REASON,
        label=_("Why?"),
        widget=forms.Textarea(attrs={"rows": 2}),
        error_messages={"required": _("Please say why: it goes into the record.")},
    )
    confirm = forms.BooleanField(
        label=_("Yes, do it"), error_messages={"required": _("Please confirm that you mean it.")}
    )
    seen = forms.CharField(max_length=100, required=False, widget=forms.HiddenInput)


class ModeForm(StepForm):
    """The switch."""

    setting = forms.ChoiceField(
        label=_("Setting"),
        choices=[
            ("auto", _("AUTO: the breakers decide")),
            ("on", _("ON: take orders, take no money now")),
            ("off", _("OFF: always try to take the money at once")),
        ],
        widget=forms.RadioSelect,
    )
    minutes = forms.RegexField(
        r"^[0-9]{1,5}$",
        required=False,
        label=_("For so many minutes (empty: until somebody changes it)"),
        error_messages={"invalid": _("Please enter a whole number of minutes, at most 10080.")},
        widget=forms.TextInput(attrs={"inputmode": "numeric", "class": "number"}),
    )
    field_order = ["setting", "minutes", "reason", "confirm", "seen"]

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or {}
        minutes = data.get("minutes")
        if minutes and data.get("setting") == "auto":
            self.add_error("minutes", _("A time limit goes with ON or OFF."))
        elif minutes and not 60 <= int(minutes) * 60 <= LONGEST_SECONDS:
            self.add_error("minutes", _("Please enter a whole number of minutes, at most 10080."))
        return data

    @property
    def seconds(self) -> int | None:
        """The time limit in seconds, of a valid form."""
        minutes = self.cleaned_data["minutes"]
        return int(minutes) * 60 if minutes else None
