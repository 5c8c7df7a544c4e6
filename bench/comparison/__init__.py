"""The comparison with the real Java broker: same machine, same run, same Java client, ratios."""
