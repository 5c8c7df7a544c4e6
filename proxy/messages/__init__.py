"""The protocol buffers of RocketMQ 5 clients: our own text of what travels, and the classes made of it."""
