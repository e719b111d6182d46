"""What the producer of a real node reads: each source a module, each with a failure of its own."""
