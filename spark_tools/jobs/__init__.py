"""The Spark jobs: each one moves data; what the data means is decided in `rules` and in the kernels."""
