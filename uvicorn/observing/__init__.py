"""What a running server reports about itself.

`exposition` serves the metrics to Prometheus, `debugging` lists the requests in flight and the stacks of their tasks,
`slow_callbacks` finds callbacks that have blocked an event loop. They read the counts and notes of other modules, and
never make a request wait.
"""
