"""Readers of what NVIDIA's tools say of GPUs."""
