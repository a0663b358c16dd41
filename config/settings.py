"""Django's settings. The numbers of the checkout itself are in `HOLDFAST`, see environment.py."""

from __future__ import annotations

import os
from pathlib import Path

from csp.constants import NONE, SELF
from django.utils.translation import gettext_lazy as _

from config.environment import Reader, database_settings, read_holdfast
from payments.storage import PatientConnection

BASE_DIR = Path(__file__).resolve().parent.parent

_env = Reader(os.environ)

ENVIRONMENT = _env.text("HOLDFAST_ENV", "production")
if ENVIRONMENT not in {"production", "demo", "test"}:
    _env.problems.append(f"HOLDFAST_ENV must be production, demo or test, got {ENVIRONMENT!r}.")
PRODUCTION = ENVIRONMENT == "production"

SECRET_KEY = _env.text("SECRET_KEY")
if PRODUCTION and 0 < len(SECRET_KEY) < 50:
    _env.problems.append("SECRET_KEY must have at least 50 characters.")
DEBUG = False
METRICS_PORT = _env.integer("METRICS_PORT", 0, high=65_535)
METRICS_HOST = _env.text("METRICS_HOST", "127.0.0.1")
HOLDFAST_HOME = Path(_env.text("HOLDFAST_HOME", str(BASE_DIR / ".holdfast")))
HOLDFAST = read_holdfast(_env)
PAYMENT_API_KEY = _env.key("PAYMENT_API_KEY")
PAYMENT_WEBHOOK_SECRET = _env.text("PAYMENT_WEBHOOK_SECRET", None if PRODUCTION else "")

ALLOWED_HOSTS = _env.words("ALLOWED_HOSTS", "" if PRODUCTION else "localhost,127.0.0.1,[::1],testserver")
CSRF_TRUSTED_ORIGINS = _env.words("CSRF_TRUSTED_ORIGINS")
if PRODUCTION and not ALLOWED_HOSTS:
    _env.problems.append("ALLOWED_HOSTS is not set.")
if any("/" in name for name in ALLOWED_HOSTS):
    _env.problems.append("ALLOWED_HOSTS must hold names only, such as shop.example, without https://.")
if any("://" not in origin for origin in CSRF_TRUSTED_ORIGINS):
    _env.problems.append(
        "CSRF_TRUSTED_ORIGINS must hold origins with their scheme, such as https://shop.example."
    )

INSTALLED_APPS = [
    "config.apps.HoldfastConfig",
    "orders.apps.OrdersConfig",
    "payments.apps.PaymentsConfig",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
]
if not PRODUCTION:
    INSTALLED_APPS.append("sandbox")

MIDDLEWARE = [
    "config.middleware.ProbeMiddleware",
    "config.middleware.RequestIdMiddleware",
    "config.metering.MeteringMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "config.middleware.NoStoreMiddleware",
    "config.middleware.NulMiddleware",
    "config.middleware.DeadlineMiddleware",
    "config.middleware.StorageUnavailableMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

if HOLDFAST.otlp_endpoint:
    # Behind the door and past the static files: neither is worth a trace, and a refusal must stay cheap.
    MIDDLEWARE.insert(
        MIDDLEWARE.index("config.middleware.NoStoreMiddleware"), "config.traces.TracesMiddleware"
    )

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
CSRF_FAILURE_VIEW = "orders.views.csrf_failure"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "orders.context.shop",
            ],
        },
    }
]

DATABASES = {"default": database_settings(_env.url("DATABASE_URL", ("postgresql", "postgres")))}
# A pool with checked connections: a restarted database costs no request more than the one in flight.
DATABASES["default"].update(CONN_MAX_AGE=0, CONN_HEALTH_CHECKS=True)
DATABASES["default"]["OPTIONS"] = {
    **dict(DATABASES["default"]["OPTIONS"]),  # type: ignore[call-overload]
    "connect_timeout": 2,
    "application_name": "holdfast",
    "pool": {
        "connection_class": PatientConnection,
        # Never smaller than the threads that may want one, so waiting means connecting, not queueing.
        "min_size": _env.integer("DATABASE_POOL_MIN", 0, high=HOLDFAST.web_threads),
        "max_size": HOLDFAST.web_threads + HOLDFAST.spare_threads + 4,
        "num_workers": 4,
        "timeout": 1.0,
        "reconnect_timeout": 5,
        "max_idle": 60,
    },
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

BROKER_URL = _env.url("BROKER_URL", ("redis", "rediss"))
CACHE_URL = _env.url("CACHE_URL", ("redis", "rediss"), default=BROKER_URL or "redis://localhost/1")
SESSION_ENGINE = "django.contrib.sessions.backends.db"

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("ru", _("Russian"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# Served straight from the source folders: no collect step to forget.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
PASSWORD_RESET_TIMEOUT = 24 * 3600
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "account-orders"
LOGOUT_REDIRECT_URL = "catalog"

SECURE_CONTENT_TYPE_NOSNIFF = True
# Never the path, which may be the key to an order. Not "no-referrer": browsers then post forms with
# `Origin: null`, and every one of them would be refused as forged.
SECURE_REFERRER_POLICY = "strict-origin"
# The demo page shows the shop inside itself.
X_FRAME_OPTIONS = "SAMEORIGIN" if ENVIRONMENT == "demo" else "DENY"
# Nothing of ours stands inside a page: no script, no style, and nothing comes from elsewhere.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF],
        "connect-src": [SELF],
        "font-src": [SELF],
        "form-action": [SELF],
        "frame-src": [SELF] if ENVIRONMENT == "demo" else [NONE],
        "frame-ancestors": [SELF] if ENVIRONMENT == "demo" else [NONE],
        "base-uri": [NONE],
    }
}
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = PRODUCTION
SECURE_SSL_REDIRECT = PRODUCTION
SECURE_HSTS_SECONDS = 31_536_000 if PRODUCTION else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = PRODUCTION
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
# How many proxies of ours stand in front, each adding the address it was asked from to X-Forwarded-For.
PROXY_COUNT = _env.integer("PROXY_COUNT", 1 if PRODUCTION else 0, high=10)
DATA_UPLOAD_MAX_MEMORY_SIZE = 200_000
DATA_UPLOAD_MAX_NUMBER_FIELDS = 200

EMAIL_HOST = _env.text("EMAIL_HOST", "")
EMAIL_BACKEND = (
    "django.core.mail.backends.smtp.EmailBackend"
    if EMAIL_HOST
    else "django.core.mail.backends.filebased.EmailBackend"
)
EMAIL_FILE_PATH = HOLDFAST_HOME / "mail"
EMAIL_PORT = _env.integer("EMAIL_PORT", 25, low=1, high=65_535)
EMAIL_USE_TLS = _env.integer("EMAIL_USE_TLS", 0, high=1) == 1
EMAIL_USE_SSL = _env.integer("EMAIL_USE_SSL", 0, high=1) == 1
if EMAIL_USE_TLS and EMAIL_USE_SSL:
    _env.problems.append("EMAIL_USE_TLS and EMAIL_USE_SSL exclude each other; one of them would do.")
EMAIL_HOST_USER = _env.text("EMAIL_HOST_USER", "")
EMAIL_HOST_PASSWORD = _env.text("EMAIL_HOST_PASSWORD", "")
EMAIL_TIMEOUT = 5
DEFAULT_FROM_EMAIL = _env.text("DEFAULT_FROM_EMAIL", "Holdfast <shop@localhost>")
SITE_URL = _env.url("SITE_URL", ("http", "https"), default="http://localhost:8000").rstrip("/")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "config.logging.LineFormatter", "as_json": PRODUCTION}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "INFO"},
    "loggers": {
        "django.request": {"level": "ERROR"},
        "django.server": {"level": "WARNING"},
        "celery": {"level": "WARNING"},  # it tells every tick
        # A stranger's Host header is answered with 400; its traceback would only say so at length.
        "django.security.DisallowedHost": {"level": "CRITICAL"},
    },
}

if not PRODUCTION:
    PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]

_env.finish()
ASKED = _env.asked
"""Every variable that was read, for the reference."""
