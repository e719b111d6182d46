"""What a simulated cluster is made of: nodes, fabric, and the file that describes them."""
