"""What servers do at the edge, each feature tried on each of them: see `scripts/compare-features`."""
