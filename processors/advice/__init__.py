"""What the rules say of what an advisor proposes."""
