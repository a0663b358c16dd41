"""The operations room's addresses."""

from django.urls import path, re_path

from orders.ops import views

urlpatterns = [
    path("", views.ops, name="ops"),
    path("charts/", views.pictures, name="ops-charts"),
    path("mode/", views.switch, name="ops-mode"),
    re_path(r"^replay/(?P<wish>pause|resume)/$", views.replay, name="ops-replay"),
    path("orders/", views.find, name="ops-find"),
    path("orders/<str:number>/cancel/", views.cancel, name="ops-cancel"),
    path("letters/redrive/", views.redrive_all, name="ops-redrive-all"),
    re_path(r"^checks/(?P<digits>[0-9]{1,15})/close/$", views.close_check, name="ops-close-check"),
    re_path(r"^letters/(?P<digits>[0-9]{1,15})/(?P<wish>redrive|discard)/$", views.letter, name="ops-letter"),
]
