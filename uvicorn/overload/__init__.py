"""Which requests are served now, which wait, and which are rejected.

`admission` decides, by numbers and queues alone: it has no clock, no event loop and no request. `gate` puts it on the
event loop of one server: timers, log lines, and the client that sent each request. The protocols answer rejected
requests.
"""
