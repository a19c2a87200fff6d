"""``python -m armload`` is ``armload``."""

from armload.cli.main import main

if __name__ == "__main__":
    main()
