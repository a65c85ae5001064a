"""A pytest plugin (`-p tests.conformance.short_watchdog`): hangs are noticed after 3 s, to keep the tests short."""

from torch_fl_conformance.effort import Effort

Effort.watchdog = property(lambda self: 3.0)  # type: ignore[assignment,method-assign]
