"""Benchmarks: what one core does without any client, and what clients see beside the real Java broker."""
