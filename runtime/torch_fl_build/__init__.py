"""What has to stand before `import torch_fl` can work: the compiled bridge, and torch's autoload entry point.

A package of its own, because importing torch_fl loads the bridge: `torch-fl build` has to run where that fails, and
torch imports the entry point in every process that imports torch. Nothing here imports torch_fl, but for that entry
point where it is asked to.

    sources.py      what the bridge is compiled from, and the digest that an edit changes
    units.py        which sources are compiled together
    compiler.py     which compiler, which flags
    supported.py    which versions of torch
    cache.py        where a built bridge lies: what `import torch_fl` asks first
    build.py        whether to build, and what is kept
    ninja_build.py  compiling and linking
    lock.py         one builder at a time
    progress.py     what a build says on stderr
    load.py         the built bridge into this process
    command.py      `torch-fl build`
    autoload.py     the entry point of torch's group torch.backends
"""


class BridgeUnavailable(ImportError):
    """The bridge is neither built nor can be; the text says why and what to do."""
