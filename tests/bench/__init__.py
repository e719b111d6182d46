"""What `make bench` measures, one module a row of Table 1."""
