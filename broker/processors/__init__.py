"""Request handlers of the message path: each module owns a few codes and registers them at the servers."""
