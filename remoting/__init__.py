"""The remoting protocol: frames, headers, connections, and the shells that move their bytes.

The codec (:mod:`frame`, :mod:`json_header`, :mod:`binary_header`, :mod:`command`) does no I/O: bytes in, commands out.
Its laws: every frame is decoded by its own type byte; answers are always written with JSON headers, which every client
reads; an undecodable frame ends its connection and nothing else.
"""
