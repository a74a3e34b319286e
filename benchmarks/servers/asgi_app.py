"""The agent of $BENCH_AGENT as an ASGI application, for servers that are not ours. The garbage collector as in `holodeck serve`."""

import gc
import os

from holodeck import create_app
from holodeck.server.process import GC_THRESHOLDS

app = create_app(os.environ["BENCH_AGENT"], protocols="ag-ui")
gc.freeze()
gc.set_threshold(*GC_THRESHOLDS)
