"""Groups of production brokers led by production controllers, on virtual time."""
