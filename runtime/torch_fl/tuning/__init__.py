"""Scans of batch size, streams and pool size: each combination is measured in processes of its own."""

#: True in such a process, where tune() must not start more of them.
in_trial = False
