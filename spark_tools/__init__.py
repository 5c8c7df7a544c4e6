"""Offset reconciliation and store verification on Spark; importing this package needs neither Spark nor Java."""
