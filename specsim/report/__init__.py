"""Results in, pictures and sentences out: tables, plots, the plain answer."""
