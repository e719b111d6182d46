"""Recordings of the log and their verification."""
