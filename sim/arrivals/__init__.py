"""Jobs that arrive at a cluster: traces of real ones, and what a scheduler makes of them."""
