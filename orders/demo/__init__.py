"""The demo's own page. Only the demo has its addresses."""
