"""A simulated cluster on the real wire, with a ledger of what was really broken."""
