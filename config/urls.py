"""All addresses."""

from django.conf import settings
from django.contrib import admin
from django.urls import include, path

from config.dependencies import DependenciesView
from orders.accounts import limited
from payments.webhook_views import webhook

handler500 = "config.middleware.server_error"
urlpatterns = [
    path("health/dependencies/", DependenciesView.as_view(), name="dependencies"),
    path("admin/login/", limited(admin.site.login)),
    path("admin/", admin.site.urls),
    path("payments/webhook/", webhook, name="payment-webhook"),
    path("i18n/", include("django.conf.urls.i18n")),
    path("ops/", include("orders.ops.urls")),
    path("", include("orders.urls")),
]

if settings.ENVIRONMENT == "demo":
    urlpatterns.append(path("_demo/", include("orders.demo.urls")))
