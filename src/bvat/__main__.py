"""``python -m bvat`` is the command line."""

from bvat.cli.main import main

if __name__ == "__main__":
    main()
