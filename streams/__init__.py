"""The log: server, permissions, reading, writing, and the runner of processors."""
