"""`python -m llamay_server MODEL.gguf`."""

import sys

from llamay_server.app.serving import main

sys.exit(main())
