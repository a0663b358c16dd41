"""The project: settings, checks, middleware, entry points."""
