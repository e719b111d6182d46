"""How a job is cut over GPUs: its description, and what is checked of it before it may queue."""
