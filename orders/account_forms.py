"""Forms of an account: signing up, logging in, a new password."""

from __future__ import annotations

from django import forms
from django.contrib.auth.forms import AuthenticationForm, UsernameField
from django.utils.translation import gettext_lazy as _

_LONGEST_NAME = 150  # an account's name is its e-mail address, and names are no longer


class EmailForm(forms.Form):
    """Where to send a link. The answer is the same whether or not there is an account."""

    email = forms.EmailField(
        label=_("E-mail"),
        max_length=_LONGEST_NAME,
        widget=forms.EmailInput(attrs={"autocomplete": "email"}),
        error_messages={
            "required": _("Please enter your e-mail address."),
            "invalid": _("This does not look like an e-mail address."),
        },
    )


class LogInForm(AuthenticationForm):
    username = UsernameField(
        label=_("E-mail or user name"), widget=forms.TextInput(attrs={"autocomplete": "username"})
    )
    error_messages = {
        "invalid_login": _("This e-mail and password do not belong together. Please try again."),
        "inactive": _("This account is closed."),
    }

    def clean_username(self) -> str:
        """Addresses are kept in small letters."""
        name: str = self.cleaned_data["username"]
        return name.lower() if "@" in name else name
