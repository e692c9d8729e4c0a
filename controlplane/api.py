"""The REST API."""

from ninja import NinjaAPI

api = NinjaAPI(title="Pilothouse", version="1", docs_url="/docs", openapi_url="/openapi.json")
