"""One HTTP/1.1 connection: its transport, its deadlines, its input and its end.

Each module owns one state that no other changes; `protocol.py`, above, puts them together. The native core has
modules of the same names in `h1/`. The application's messages and the meaning of bytes are unknown here.
"""
