"""Readers of documents in JSON: what each tool writes, and near which line a fact stands."""
