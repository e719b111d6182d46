"""Shells that carry decisions out and write down what happened."""
