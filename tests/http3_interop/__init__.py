"""Other programs' HTTP/3 clients against this server, over a link that loses packets: `scripts/http3-interop`."""
