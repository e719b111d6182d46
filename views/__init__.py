"""What only reads: stories of incidents, status, reports."""
