"""Understudy: a RocketMQ-compatible messaging cluster whose slaves act for a dead master."""


def __getattr__(name: str) -> str:
    # Read when asked for: looking an installation's version up takes a sixth of a server's start-up time.
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("understudy")
    except PackageNotFoundError:  # imported from a source tree that was never installed
        return "0.0.0+source"
