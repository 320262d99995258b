"""What a server counts, and the memory it occupies.

`page` has the numbers of one event loop in memory that several processes share, `memory` asks the platform what a
process holds. Who reads the numbers, and in which format, is not known here: that is `observing`.
"""
