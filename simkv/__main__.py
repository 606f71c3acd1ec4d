"""``python -m simkv``."""

from simkv.cli import main

if __name__ == "__main__":
    main()
