"""A switch's collector: JSON lines that somebody else fetched become facts of the switch."""
