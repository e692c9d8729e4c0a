"""The composition root: settings, URLs, processes. The only package that knows both apps."""
