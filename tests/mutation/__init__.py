"""Mutation testing: would the tests notice if a line of the healer or runner were wrong?"""
