"""Signing up, logging in, a forgotten password: only by a link in a mail, so no page tells who has an account."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model, login
from django.contrib.auth import views as auth
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.tokens import default_token_generator
from django.core import signing
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse, reverse_lazy
from django.utils.decorators import method_decorator
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from orders.account_forms import EmailForm, LogInForm
from orders.guesses import LETTERS, LETTERS_TO, LOG_INS, GuessLimit
from orders.letters import letter, post
from orders.shopper import address_of

_SALT = "holdfast.join"
_LINK_SECONDS = 24 * 3600


def limited(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Answers 429 to an address that tries to log in too often, whether or not Valkey is there to count together."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method != "POST" or LOG_INS.count(address_of(request)):
            return view(request, *args, **kwargs)
        return too_many(request, LOG_INS, "log-in")

    return guarded


@method_decorator(limited, name="dispatch")
class LogIn(auth.LoginView):
    template_name = "account/login.html"
    authentication_form = LogInForm
    redirect_authenticated_user = True


class NewPassword(auth.PasswordResetConfirmView):
    """The page behind the link of a reset mail. The link holds once and for `PASSWORD_RESET_TIMEOUT`."""

    template_name = "account/new_password.html"
    success_url = reverse_lazy("account-orders")
    post_reset_login = True
    post_reset_login_backend = "django.contrib.auth.backends.ModelBackend"

    def form_valid(self, form: SetPasswordForm[Any]) -> HttpResponse:
        messages.success(self.request, _("Your new password is set, and you are logged in."))
        return super().form_valid(form)


@require_http_methods(["GET", "POST"])
@never_cache
def join(request: HttpRequest) -> HttpResponse:
    return _ask_for_link(request, "account/join.html", _join_letter)


@require_http_methods(["GET", "POST"])
@never_cache
def forgotten(request: HttpRequest) -> HttpResponse:
    return _ask_for_link(request, "account/forgotten.html", _reset_letter)


def _ask_for_link(request: HttpRequest, template: str, write: Any) -> HttpResponse:
    form = EmailForm(request.POST or None)
    if not form.is_valid():
        return render(request, template, {"form": form}, status=422 if form.is_bound else 200)
    email = form.cleaned_data["email"].lower()
    for limit, key in ((LETTERS, address_of(request)), (LETTERS_TO, email)):
        if not limit.count(key):
            return too_many(request, limit, "letters")
    write(email)
    return redirect("link-sent")


def too_many(request: HttpRequest, limit: GuessLimit, what: str) -> HttpResponse:
    """429. `what` there were too many of: "letters", "log-in" or "links"."""
    response = render(request, "orders/too_many.html", {"what": what}, status=429)
    response["Retry-After"] = str(limit.retry_after)
    return response


@require_safe
def link_sent(request: HttpRequest) -> HttpResponse:
    return render(request, "account/link_sent.html")


def _known(email: str) -> Any:
    return get_user_model()._default_manager.filter(email__iexact=email, is_active=True).first()


def _join_letter(email: str) -> None:
    """To somebody new the link, to somebody known a hint: the page says the same to both."""
    if _known(email):
        post(letter("known", _("You have an account already"), email, {}))
        return
    link = reverse("join-confirm", args=[signing.dumps(email, salt=_SALT)])
    post(letter("join", _("Choose a password for your account"), email, {"link": settings.SITE_URL + link}))


def _reset_letter(email: str) -> None:
    user = _known(email)
    if user is None:
        post(letter("unknown", _("There is no account for this address"), email, {}))
        return
    uid = urlsafe_base64_encode(force_bytes(user.pk))
    link = reverse("new-password", args=[uid, default_token_generator.make_token(user)])
    post(letter("reset", _("Choose a new password"), email, {"link": settings.SITE_URL + link}))


@require_http_methods(["GET", "POST"])
@never_cache
def join_confirm(request: HttpRequest, signed: str) -> HttpResponse:
    """The page behind the link of a sign-up mail: the account begins to exist when its password is chosen."""
    try:
        email = signing.loads(signed, salt=_SALT, max_age=_LINK_SECONDS)
    except signing.BadSignature:
        email = None
    if email is None or get_user_model()._default_manager.filter(username=email).exists():
        return render(request, "account/new_password.html", {"validlink": False}, status=410)
    user = get_user_model()(username=email, email=email)
    form = SetPasswordForm(user, request.POST or None)
    if not form.is_valid():
        context = {"form": form, "validlink": True, "email": email}
        return render(request, "account/new_password.html", context, status=422 if form.is_bound else 200)
    try:
        with transaction.atomic():
            form.save()
    except IntegrityError:  # the link was opened twice at once
        return redirect("login")
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    messages.success(request, _("Welcome aboard. Your basket came along."))
    return redirect("account-orders")
