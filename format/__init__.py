"""What RocketMQ's bytes and texts mean, once: for the store, the protocol, the client and the Spark jobs alike.

Plain functions and values. Nothing here waits, opens a file or a socket, or reads a clock; trio is not imported.
"""
