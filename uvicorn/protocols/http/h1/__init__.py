"""One HTTP/1.1 connection: its transport, its deadlines, its input and its end.

Each module owns one state, and nobody else changes it; `protocol.py`, above, puts them together. The native core has
modules of the same names in `h1/`. What an application is told, and what bytes mean, is not known here.
"""
