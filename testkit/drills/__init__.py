"""Failovers that are played and told: ``understudy drill NAME``."""
