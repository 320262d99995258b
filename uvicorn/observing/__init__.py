"""What a running server reports about itself.

`exposition` serves the metrics to Prometheus, `debugging` lists the requests in flight and the stacks of their tasks,
`stalls` attributes the stalls of an event loop, and `probe` answers probes. They read the counts and notes of other
modules, and never make a request wait.
"""
