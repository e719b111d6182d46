"""Lives of GPUs, with and without a sign of what comes, for the failure model to learn from."""
