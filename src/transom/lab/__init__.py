"""Replay: the same kernel driven by a recorded session, under every strategy."""
