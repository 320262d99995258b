"""Where the server listens, and which connections it accepts.

Sockets and those that systemd hands over, the acceptors of one event loop, the limit on connections, the table by which
several workers share new ones, and the PROXY header in front of everything else. What a connection carries is not known
here: neither TLS nor HTTP, and no setting by its `Config`.
"""
