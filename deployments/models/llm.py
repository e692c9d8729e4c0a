"""What is served, and where its files are."""

from __future__ import annotations

from django.db import models

from .node import Node


class LanguageModel(models.Model):
    """A model by folder on the nodes, or by hub id. `facts` are those of its `config.json`."""

    name = models.CharField(max_length=128, unique=True)
    path = models.CharField(max_length=1000)
    config = models.JSONField(default=dict)
    facts = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    @property
    def is_local(self) -> bool:
        """Whether the model is named by a folder (else by hub id)."""
        return self.path.startswith("/")


class ModelCopy(models.Model):
    """The files of a model on one node, as last looked at. `fingerprint` is empty until a job has hashed them."""

    model = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="copies")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="model_copies")
    path = models.CharField(max_length=1000)
    present = models.BooleanField(default=False)
    files = models.PositiveIntegerField(default=0)
    total_bytes = models.BigIntegerField(default=0)
    fingerprint = models.CharField(max_length=80, blank=True)
    error = models.JSONField(null=True)
    checked_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["model", "node"], name="one_copy_per_model_and_node")]
