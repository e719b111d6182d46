"""What is written in the log: names, subjects, envelopes and every fact."""
