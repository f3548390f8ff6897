"""From measurements to a profile: readers, fit, validation."""
