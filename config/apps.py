"""The project as an app: its system checks and commands."""

from django.apps import AppConfig


class HoldfastConfig(AppConfig):
    name = "config"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        from config import checks  # noqa: F401
