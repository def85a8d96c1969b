"""Readers of recorded sessions: one file per transcript format, `source` for containers and lines, `load` to append."""
