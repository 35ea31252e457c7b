"""Sources that Spark does not have."""

from headgate.sources.files import FileSource, files

__all__ = ["FileSource", "files"]
