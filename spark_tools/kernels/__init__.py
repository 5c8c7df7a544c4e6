"""Pure readers of store files: bytes in, numpy or Arrow columns out. No Spark, no trio, no writing."""
