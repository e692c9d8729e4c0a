"""What people type into pages, read into values. What may be wished is checked by the services, not here."""
