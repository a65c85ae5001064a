"""What a certification run becomes: result model, JSON schema, HTML page, badge, attestation, registry, gate.

A report is plain data with a schema. This room knows nothing of pytest; it imports the spec room only.
"""
