"""What was really broken, and how well NEMESIS did against it."""
