"""Load generators: each is a command whose output is parsed into a `bench.model.Burst`."""
