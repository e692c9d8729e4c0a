from django.apps import AppConfig


class ControlplaneConfig(AppConfig):
    name = "controlplane"

    def ready(self) -> None:
        """Registers the system checks, and makes our Celery app the one that tasks sent by name go through."""
        from controlplane import celery, checks  # noqa: F401
