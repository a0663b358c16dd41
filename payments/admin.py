"""Staff pages of payments: reading, and the degraded-mode switch. No state is assigned here."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext_lazy as _

from payments import mode
from payments.models import ModeChange, ModeState, Payment, StaffAction
from payments.states import ModeSetting


class ReadOnlyAdmin(admin.ModelAdmin):
    """History: to be read, not to be edited or deleted."""

    actions = None

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Payment)
class PaymentAdmin(ReadOnlyAdmin):
    list_display = ("reference", "status", "amount_minor", "currency", "reason", "created_at")
    list_filter = ("status", "currency")
    search_fields = ("reference", "intent")


@admin.register(ModeChange)
class ModeChangeAdmin(ReadOnlyAdmin):
    list_display = ("at", "actor", "old_setting", "new_setting", "old_effective", "new_effective", "reason")


@admin.register(StaffAction)
class StaffActionAdmin(ReadOnlyAdmin):
    list_display = ("at", "actor", "action", "subject", "before", "after", "reason")
    list_filter = ("action",)


class ModeForm(forms.ModelForm):
    """The switch. `seen_version` is what the page showed: an old page changes nothing."""

    setting = forms.ChoiceField(choices=[(value.value, value.value) for value in ModeSetting])
    reason = forms.CharField(max_length=500, required=False, widget=forms.Textarea(attrs={"rows": 2}))
    for_seconds = forms.IntegerField(
        required=False, min_value=1, max_value=604_800, label=_("For so many seconds (empty: until changed)")
    )
    seen_version = forms.IntegerField(widget=forms.HiddenInput)
    confirm = forms.BooleanField(label=_("I know what this does to the shop"))

    class Meta:
        model = ModeState
        fields = ("setting", "reason", "for_seconds", "seen_version", "confirm")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["seen_version"].initial = self.instance.version
        self.initial["reason"] = ""

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or {}
        if (
            data.get("setting") in {ModeSetting.ON, ModeSetting.OFF}
            and not (data.get("reason") or "").strip()
        ):
            self.add_error("reason", _("Please say why."))
        if data.get("setting") == ModeSetting.AUTO and data.get("for_seconds"):
            self.add_error("for_seconds", _("A time limit goes with on or off."))
        return data


@admin.register(ModeState)
class ModeStateAdmin(admin.ModelAdmin):
    form = ModeForm
    list_display = ("setting", "automatic", "since", "until", "actor", "reason")
    actions = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("payments.operate")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("payments.operate")

    def save_model(self, request: HttpRequest, obj: ModeState, form: Any, change: bool) -> None:
        data = form.cleaned_data
        mode.change(
            data["setting"],
            actor=request.user.get_username(),
            reason=data["reason"],
            for_seconds=data["for_seconds"],
            expected_version=data["seen_version"],
        )

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        try:
            return super().change_view(request, object_id, form_url, extra_context)
        except mode.StaleModeError as error:
            messages.error(request, str(error) + ". " + str(_("Nothing was changed; please look again.")))
            return HttpResponseRedirect(request.path)
