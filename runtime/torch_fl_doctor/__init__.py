"""What a user asks when something is wrong: `torch-fl doctor` and `torch-fl config`.

A package of its own, because importing torch_fl loads the bridge, and its absence is one of the things to be told.
Nothing here loads a plugin, a bridge or torch into its own process: each may hang it or end it. Children do, with a
time limit, and what they wrote down until then is what is known.

    commands.py        the commands
    bridgeless.py      torch_fl's Python modules without the bridge
    finding.py         what a check says, and how it is shown
    children.py        a child process with a time limit
    installation.py    torch, compiler, bridge; in installation_child.py
    vendors.py         kit, driver and devices of each vendor; in vendor_child.py
    libraries.py       which shared libraries a plugin needs, and which of them are missing
    nodes.py           device files: named by libraries, known by name, open to this user
    folders.py         folders and files that have to be readable or writable
    settings.py        the configuration
    log_file.py        the log: can it be written, what did the last run say
"""
