"""Addresses of the pages. What is added has an address of its own, so that nothing can be named like a verb."""

from __future__ import annotations

from django.urls import path

from deployments.views import deployments, fleet, jobs, joining, logs, models, nodes, settings, wishes

urlpatterns = [
    path("", fleet.overview, name="fleet"),
    path("nodes/", nodes.index, name="nodes"),
    path("nodes/<str:name>/", nodes.detail, name="node"),
    path("nodes/<str:name>/change/", nodes.change, name="node-change"),
    path("nodes/<str:name>/intent/", nodes.intent, name="node-intent"),
    path("nodes/<str:name>/remove/", nodes.remove, name="node-remove"),
    path("nodes/<str:name>/environment/", nodes.environment, name="node-environment"),
    path("probe/", nodes.probe, name="probe"),
    path("add/node/", nodes.add, name="node-add"),
    path("add/nodes/", joining.add_many, name="nodes-add"),
    path("fingerprints/", joining.fingerprints, name="fingerprints"),
    path("models/", models.index, name="models"),
    path("models/<str:name>/", models.detail, name="model"),
    path("models/<str:name>/look/", models.look, name="model-look"),
    path("models/<str:name>/fingerprint/", models.fingerprint, name="model-fingerprint"),
    path("models/<str:name>/remove/", models.remove, name="model-remove"),
    path("add/model/", models.add, name="model-add"),
    path("layouts/", models.layout_index, name="layouts"),
    path("layouts/<str:name>/remove/", models.layout_remove, name="layout-remove"),
    path("add/layout/", models.layout_add, name="layout-add"),
    path("deployments/", deployments.index, name="deployments"),
    path("deployments/<str:name>/", deployments.detail, name="deployment"),
    path("deployments/<str:name>/change/", wishes.change, name="deployment-change"),
    path("deployments/<str:name>/stop/", deployments.wish, {"verb": "stop"}, name="deployment-stop"),
    path("deployments/<str:name>/pause/", deployments.wish, {"verb": "pause"}, name="deployment-pause"),
    path("deployments/<str:name>/run/", deployments.wish, {"verb": "run"}, name="deployment-run"),
    path("deployments/<str:name>/scale/", deployments.scale, name="deployment-scale"),
    path("deployments/<str:name>/retry/", deployments.retry, name="deployment-retry"),
    path("deployments/<str:name>/remove/", deployments.remove, name="deployment-remove"),
    path("deployments/<str:name>/key/", deployments.api_key, name="deployment-key"),
    path("add/deployment/", wishes.add, name="deployment-add"),
    path("add/deployment/preview/", wishes.preview, name="deployment-preview"),
    path("processes/<str:process_id>/log/", logs.log, name="log"),
    path("processes/<str:process_id>/force/", deployments.force, name="process-force"),
    path("jobs/", jobs.index, name="jobs"),
    path("jobs/<str:job_id>/", jobs.detail, name="job"),
    path("jobs/<str:job_id>/cancel/", jobs.cancel, name="job-cancel"),
    path("jobs/<str:job_id>/retry/", jobs.retry, name="job-retry"),
    path("settings/", settings.tokens, name="settings"),
    path("settings/tokens/<int:token_id>/revoke/", settings.revoke, name="token-revoke"),
    path("settings/keys/", settings.ssh_keys, name="keys"),
    path("settings/keys/<str:name>/remove/", settings.remove_key, name="key-remove"),
    path("settings/users/", settings.users, name="users"),
    path("settings/users/<int:user_id>/", settings.change_user, name="user"),
]
