"""Tests, and what they share: import as `tests.<module>`."""
