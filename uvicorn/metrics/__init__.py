"""A server's counters, and the memory it occupies.

`page` has the numbers of one event loop in memory that several processes share, `memory` asks the platform how much a
process occupies. Readers and formats are the business of `observing`.
"""
