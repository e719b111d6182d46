"""What is the smallest safe recovery, and may it be done: one file a question."""
