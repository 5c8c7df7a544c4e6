"""The tables that travel between the replicas of a group: each is one row of the list in :mod:`rows`.

:mod:`table` says what a row must be able to do; what a slave copies, what is saved and what a returning master takes
back all go through that list and know no table by its name.
"""
