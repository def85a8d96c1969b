"""The pure kernel: no I/O, clock, randomness, environment, threads or logging."""
