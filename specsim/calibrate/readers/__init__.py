"""calibrate/readers."""
