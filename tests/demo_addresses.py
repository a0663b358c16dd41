"""All addresses, as the demo has them."""

from django.urls import include, path

from config.urls import urlpatterns as everywhere

urlpatterns = [*everywhere, path("_demo/", include("orders.demo.urls"))]
