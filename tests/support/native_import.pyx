# cython: language_level=3, binding=False
"""Native code that calls a function of Python code as it is imported, as scipy's does."""

import ctypes

address = ctypes.cast(0, ctypes.c_void_p)
