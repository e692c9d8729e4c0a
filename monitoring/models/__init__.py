"""What monitoring keeps in the database."""

from .observers import ObserverSeen

__all__ = ["ObserverSeen"]
