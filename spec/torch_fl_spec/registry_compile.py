"""Compiles spec/torch_fl_spec/operators/*.yaml into operators.json."""


def compile_registry() -> None:
    """Write operators.json."""
