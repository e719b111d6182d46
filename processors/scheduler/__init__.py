"""Which job runs where, and when: the queue."""
