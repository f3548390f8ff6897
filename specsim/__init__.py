"""specsim: which speculative-decoding setting to launch, before a GPU hour is spent."""

__version__ = "0.1.0"
