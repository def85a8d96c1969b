"""The command line: one file per command; parse, call, print."""
