"""The runner under faults: simulated ones by the thousand, real ones with real processes."""
