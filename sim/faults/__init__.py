"""What can break, how it shows over time, and the scenarios that say when."""
