"""Models on this machine: llamay's own store, and the stores of other programs, which are only read.

The store maps a name to a manifest, and the manifest to blobs that are named by the SHA-256 of their bytes:

    $LLAMAY_HOME/
      manifests/<name>.json    what a name means: source, files, digests, sizes
      blobs/sha256-<64 hex>    the bytes, read-only
      views/<id>/              split models under the file names that their parts need
      uploads/sha256-<64 hex>  verified files that no manifest names yet; a day old, they are deleted
      partial/<key>/           downloads that are not finished; never read by anything but the download itself
      lock

A blob appears under its name only whole and verified, and a manifest only after all its blobs, so a reader
never sees half a model. Names are case-insensitive (`Qwen` and `qwen` are one name), because some file
systems are.
"""

from .manifest import BrokenManifestError, Entry, File, Manifest, Role, check_name
from .model_store import Incoming, Store, home

__all__ = [
    "BrokenManifestError",
    "Entry",
    "File",
    "Incoming",
    "Manifest",
    "Role",
    "Store",
    "check_name",
    "home",
]
