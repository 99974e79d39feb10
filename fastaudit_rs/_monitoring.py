"""The versions of Python that report calls to a monitor (PEP 669)."""

import sys

#: Return whether calls of native code can be watched here.
MONITORING = sys.version_info >= (3, 12)
