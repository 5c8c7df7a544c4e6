"""Understudy: a RocketMQ-compatible messaging cluster whose slaves act for a dead master."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("understudy")
except PackageNotFoundError:  # imported from a source tree that was never installed
    __version__ = "0.0.0+source"
