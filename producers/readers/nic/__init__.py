"""Readers of counters and settings of NICs and their ports."""
