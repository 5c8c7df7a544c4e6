"""Measurements that need nothing but an installation: ``understudy bench NAME``."""
