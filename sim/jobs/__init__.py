"""The training jobs of a simulated cluster: ranks, steps, collectives, flight recorders."""
