"""Servers under load: what the scale and chaos benchmarks share."""
