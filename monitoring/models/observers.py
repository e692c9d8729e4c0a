"""Who observes."""

from __future__ import annotations

from django.db import models


class ObserverSeen(models.Model):
    """An observer that runs, or ran until `seen_at`; nodes are shared out between those seen lately."""

    id = models.CharField(max_length=64, primary_key=True)
    seen_at = models.DateTimeField(db_index=True)
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
