"""The suite: judge and driver, oracles and error budgets, strategies, one test module per chapter.

`pytest conformance --vendor=x` proves the plugin of vendor x right or wrong, rule by rule and operator by
operator. The judge (this package under pytest) computes expected values; the driver (a child process)
alone touches the plugin.
"""
