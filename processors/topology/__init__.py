"""What is wired to what, as nodes and switches told it."""
