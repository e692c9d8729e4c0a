"""The Celery app. Celery is a doorbell: a task may be lost, doubled or late, and nothing breaks."""

from __future__ import annotations

import logging.config
import os
import warnings
from datetime import timedelta
from typing import Any

from celery import Celery
from celery.platforms import SecurityWarning
from celery.signals import setup_logging

from controlplane.env import or_exit

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
with or_exit():
    from controlplane import settings


def _every(task: str, seconds: float) -> dict[str, Any]:
    """A beat entry. It expires with its period, so that a worker that was away finds no heap of old rings."""
    return {"task": task, "schedule": timedelta(seconds=seconds), "options": {"expires": seconds}}


# Our messages are JSON, so that running as root opens no door through the broker; Celery warns because of pickle.
warnings.filterwarnings("ignore", category=SecurityWarning)

# Beat sends names and runs no task: without Django and the tasks it takes half the memory.
_runs_tasks = settings.PROCESS != "beat"

app = Celery("pilothouse", broker=settings.BROKER_URL, set_as_current=True, fixups=None if _runs_tasks else [])
app.conf.update(
    accept_content=["json"],
    task_ignore_result=True,
    task_acks_late=True,
    task_default_queue="pilothouse",
    worker_pool="threads",
    worker_concurrency=settings.WORKER_THREADS,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 900, "socket_timeout": 30, "socket_connect_timeout": 5},
    # In memory: the table below is short and nothing in it may not be late by one restart.
    beat_scheduler="celery.beat:Scheduler",
    beat_max_loop_interval=5,
    timezone="UTC",
    beat_schedule={
        "reconcile": _every("deployments.reconcile_due", 2),
        "jobs": _every("deployments.advance_jobs_due", 2),
        "sweep": _every("deployments.sweep", 15),
        "prune": _every("deployments.prune", 3600),
    },
)
if _runs_tasks:
    app.autodiscover_tasks(["deployments", "monitoring"])


@setup_logging.connect
def _log_as_the_others_do(**_: Any) -> None:
    """Celery sets up its own logging unless somebody listens here."""
    logging.config.dictConfig(settings.LOGGING)
