"""What happens when a wheel or an editable install is made: the operator registry (YAML) is compiled to JSON."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileRegistry(BuildHookInterface[Any]):
    """Runs torch_fl_spec.registry_compile on the YAML sources of the tree; tags a wheel that brings a bridge along."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write operators.json beside the YAML folder; the driver reads JSON only."""
        sys.path.insert(0, str(Path(self.root) / "spec"))
        from torch_fl_spec.registry_compile import compile_registry

        compile_registry()
        if self.target_name == "wheel" and any(Path(self.root).glob("runtime/torch_fl/prebuilt/*.so")):
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
