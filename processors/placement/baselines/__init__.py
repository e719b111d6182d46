"""What other schedulers would do, coded from their documents and pinned by their own examples."""
