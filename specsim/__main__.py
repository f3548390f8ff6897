"""``python -m specsim``."""

from specsim.cli.main import main

if __name__ == "__main__":
    main()
