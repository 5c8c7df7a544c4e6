"""The calls of MessagingService: each module has those of one subject."""
