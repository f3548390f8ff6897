"""What a round costs, in seconds; it knows nothing of acceptance."""
