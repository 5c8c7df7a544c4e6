"""What a proxy answers: pure functions of requests, settings and the answers of brokers; no network, no event loop."""
