"""`python -m llamay_server MODEL.gguf`."""

import sys

from ._serve import main

sys.exit(main())
