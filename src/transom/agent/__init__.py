"""The coding agent above a session: its tools here, its loop beside them."""
