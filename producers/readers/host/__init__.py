"""Readers of settings and services of a host."""
