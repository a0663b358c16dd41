"""All addresses."""

from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import include, path

from payments.webhook_views import webhook

urlpatterns = [
    path("admin/", admin.site.urls),
    path("account/login/", auth.LoginView.as_view(template_name="account/login.html"), name="login"),
    path("account/logout/", auth.LogoutView.as_view(), name="logout"),
    path("payments/webhook/", webhook, name="payment-webhook"),
    path("i18n/", include("django.conf.urls.i18n")),
    path("", include("orders.urls")),
]
