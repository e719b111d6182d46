"""Hands events of the log on to what knows nothing of it: webhooks, syslog. They only read."""
