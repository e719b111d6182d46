"""Advisors that solve what processors ask, and decide nothing."""
