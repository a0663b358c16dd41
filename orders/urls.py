"""The shop's addresses."""

from django.urls import path

from orders import browse, order_views, views

urlpatterns = [
    path("", browse.catalog, name="catalog"),
    path("cart/", browse.cart_page, name="cart"),
    path("cart/add/", browse.cart_add, name="cart-add"),
    path("cart/update/", browse.cart_update, name="cart-update"),
    path("cart/remove/", browse.cart_remove, name="cart-remove"),
    path("currency/", browse.choose_currency, name="currency"),
    path("checkout/", views.checkout, name="checkout"),
    path("orders/<str:token>/", order_views.order, name="order"),
    path("orders/<str:token>/back/", order_views.order_back, name="order-back"),
    path("orders/<str:token>/cancel/", order_views.order_cancel, name="order-cancel"),
    path("orders/<str:token>/pay/", order_views.order_pay, name="order-pay"),
    path("account/orders/", order_views.account_orders, name="account-orders"),
]
