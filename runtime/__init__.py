"""The outside world as inputs: clock, network, disk, randomness, supervision and logging.

Services take these objects as arguments and never reach for ``time``, ``socket``, ``open`` or ``random`` themselves.
Production passes the real ones; tests and simulations pass deterministic ones with the same interface.
"""
