from django.apps import AppConfig


class SandboxConfig(AppConfig):
    """Brings `manage.py sandbox`; has no models."""

    name = "sandbox"
    label = "sandbox"
    verbose_name = "Sandbox"
