"""A trio client for RocketMQ clusters: producers, consumers and admin calls."""
