"""Answers: the best setting at every load, break-even, schedules, what to measure next."""
