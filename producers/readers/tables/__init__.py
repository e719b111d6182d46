"""Readers of tables: step times, runs, pairs."""
