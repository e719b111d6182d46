"""How long one training step takes on the GPUs a job was given, and how much of them it uses."""
