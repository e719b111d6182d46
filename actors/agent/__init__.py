"""The agent of one node: starts ranks, watches them, does what plans say, and reports."""
