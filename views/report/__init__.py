"""The report of one incident: for whoever was not there."""
