"""One test module per chapter of SPEC.md; `-k` and the report use the same words."""
