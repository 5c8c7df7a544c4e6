"""A gRPC server on trio: HTTP/2 by ``h2``, with unary calls, streams of answers, and streams in both directions."""
