"""What the benchmark of the quorum measures: members in processes of their own, and one controller."""
