"""``python -m trainer TASK CONFIG.json``: see `trainer.run`."""

import sys

from trainer.run import main

sys.exit(main())
