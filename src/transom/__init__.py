"""Transom: small, clean windows over a durable, searchable log."""
