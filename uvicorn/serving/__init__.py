"""The state that the connections of one event loop share, and how they end.

`state` lists the connections, `drain` ends them step by step, `buffers` limits what a process holds for its clients,
and `interruption`, `init_signals` and `kill_deadlines` end a process whose event loop is blocked. Protocols add
themselves; which protocol a connection speaks, and why a server ends, is not known here.
"""
