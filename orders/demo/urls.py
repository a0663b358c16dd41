"""The demo page's addresses; only the demo has them."""

from django.urls import path

from orders.demo import views

urlpatterns = [
    path("", views.page, name="demo"),
    path("break/", views.break_one, name="demo-break"),
    path("heal/", views.heal_one, name="demo-heal"),
    path("dearer/", views.dearer, name="demo-dearer"),
]
