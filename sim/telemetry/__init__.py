"""What devices of a simulated cluster read, and what a node tells the log of them."""
