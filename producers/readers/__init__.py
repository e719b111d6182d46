"""Readers of files that people already have: kernel logs, flight-recorder dumps."""
