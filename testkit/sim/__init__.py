"""Clusters on a virtual clock, an in-memory network and disks that lose power, from one seed."""
