"""TLS by OpenSSL: contexts, certificates, session tickets, and their renewal while a server runs.

`context` builds what a listener needs from the settings, `certificates` reads what a certificate says, `renewal` looks
for new ones, `extension` tells an application about the handshake, and `openssl` alone reaches past Python's `ssl`.
Sockets, requests and event loops are not known here. This package imports nothing by itself: `extension` is light.
"""
