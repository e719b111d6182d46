"""NEMESIS keeps GPU training jobs running through hardware faults."""

__version__ = "0.1.0"
