"""The log in Prometheus' terms: it only reads, and counts what was written."""
