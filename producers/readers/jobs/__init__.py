"""Readers of what a training job and its libraries print."""
