"""One process, many brokers: hosting, live add and remove, and the programs that start it."""
