"""Replication of brokers led by a controller: epochs, truncation, and who is in sync (AutoSwitchHAService.java)."""
