"""The normative room: the C header, the operator registry, the rule list, their reader and the loader.

Everything here is plain data or talks to a plugin through cffi. It imports no torch and no other
room, so that a driver process starts fast and a gate can read a report without a device.
"""

__version__ = "0.1.0"

INTERFACE = "1.0-candidate"
"""Name of the interface version that plugin.h and SPEC.md describe, as reports and badges spell it."""
