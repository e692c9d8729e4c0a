"""The panel's pages. A view parses, makes one call and renders; what is refused is shown beside its field."""
