"""Which facts are one event, and is it over?"""
