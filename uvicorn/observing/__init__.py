"""What a running server tells about itself.

`exposition` serves the metrics to Prometheus, `debugging` lists the requests in flight and the stacks of their tasks,
`slow_callbacks` finds out what has blocked an event loop. It reads what others count and note. Nothing that serves a
request waits for anything here.
"""
