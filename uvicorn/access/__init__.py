"""The access log and the names of requests.

`log` writes one record for each response, `format` compiles `access_log_format`, `arguments` finds what a record says
of a scope, and `request_id` takes over or makes the id of a request. A record is all that is known of a request here:
no connection, no protocol, no file.
"""
