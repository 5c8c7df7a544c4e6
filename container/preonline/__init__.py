"""A master comes back: it learns what happened while it was away before anybody may send to it.

:mod:`merge` decides, queue by queue, which of two replicas' offsets is right.
"""
