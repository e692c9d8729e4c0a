"""The embedded default: PostgreSQL, Valkey, web, worker, beat and observer on one machine, under one supervisor."""
