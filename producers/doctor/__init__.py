"""What a node and an installation can and cannot see, and what would mend each gap."""
