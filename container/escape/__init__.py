"""The way out of a slave that acts: it may store nothing itself, so what is due goes to a master that lives.

:mod:`choice` decides where, :mod:`bridge` puts and reads. Whatever escapes keeps its identity: unique key, birth time
and properties stay.
"""
