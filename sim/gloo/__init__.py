"""Incidents made by the real thing: torch processes, a fault, their recorders, triage."""
