"""What runs on nodes: encoders of telemetry, and readers of people's files."""
