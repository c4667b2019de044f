"""The version of this package, as installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("llamay-server")
except PackageNotFoundError:  # run from a source tree that was never installed
    VERSION = "0.0.0"
