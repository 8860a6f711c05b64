"""The package version, in a file that importing costs nothing."""

__version__ = "0.1.0.dev0"
