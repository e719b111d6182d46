"""Which component is at fault, and which only suffer: one file a kind of evidence."""
