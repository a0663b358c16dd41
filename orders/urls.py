"""The shop's addresses."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from orders import accounts, browse, order_views, views

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
    path("account/login/", accounts.LogIn.as_view(), name="login"),
    path("account/logout/", LogoutView.as_view(), name="logout"),
    path("account/join/", accounts.join, name="join"),
    path("account/join/<str:signed>/", accounts.join_confirm, name="join-confirm"),
    path("account/password/", accounts.forgotten, name="forgotten"),
    path("account/password/<str:uidb64>/<str:token>/", accounts.NewPassword.as_view(), name="new-password"),
    path("account/sent/", accounts.link_sent, name="link-sent"),
    path("account/orders/", order_views.account_orders, name="account-orders"),
]
