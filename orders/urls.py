"""The shop's addresses."""

from django.urls import path

from orders import views

urlpatterns = [
    path("", views.catalog, name="catalog"),
    path("cart/", views.cart_page, name="cart"),
    path("cart/add/", views.cart_add, name="cart-add"),
    path("cart/update/", views.cart_update, name="cart-update"),
    path("cart/remove/", views.cart_remove, name="cart-remove"),
    path("currency/", views.choose_currency, name="currency"),
    path("checkout/", views.checkout, name="checkout"),
    path("orders/<str:token>/", views.order, name="order"),
    path("orders/<str:token>/cancel/", views.order_cancel, name="order-cancel"),
    path("orders/<str:token>/pay/", views.order_pay, name="order-pay"),
    path("account/orders/", views.account_orders, name="account-orders"),
]
