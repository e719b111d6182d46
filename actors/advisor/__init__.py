"""A language model that may propose and explain, and decides nothing."""
