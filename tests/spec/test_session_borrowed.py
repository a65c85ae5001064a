"""Tables of devices that a call opened, and memory that a plugin owns under a buffer's name."""

from __future__ import annotations

from torch_fl_spec.session import Session

from tests.spec.commands import call
from tests.spec.plugin_builder import PluginBuilder


def test_a_table_is_read_from_a_device_that_a_call_opened(plugin: PluginBuilder) -> None:
    described = Session(plugin("good"))
    known = described.execute({"do": "table_bytes", "device": "d0"})
    assert known["same"] is True
    assert described.close() == []

    session = Session(plugin("good"))
    opened = call(session, "device.open", 0, {"struct": "fl_device_open_args"}, {"out": "fl_device", "save": "mine"})
    assert opened["status"] == 0
    read = session.execute({"do": "table_bytes", "handle": "mine"})
    assert read["declared"] == known["declared"]
    assert read["same"] is None
    assert session.close() == []


def test_adopted_memory_is_read_and_written_in_place(plugin: PluginBuilder) -> None:
    session = Session(plugin("good"))
    session.execute({"do": "host_alloc", "name": "owner", "bytes": 64, "fill": 7})
    session.references["pointer"] = session.address_of("owner", 16)
    session.execute({"do": "host_adopt", "name": "guest", "ref": "pointer", "bytes": 8})
    assert session.execute({"do": "host_read", "name": "guest", "bytes": 8})["data"] == "07" * 8
    session.execute({"do": "host_write", "name": "guest", "offset": 6, "data": "0102"})
    assert session.execute({"do": "host_read", "name": "owner", "offset": 20, "bytes": 5})["data"] == "0707010207"
    session.execute({"do": "host_free", "name": "guest"})
    assert session.execute({"do": "host_read", "name": "owner", "offset": 22, "bytes": 2})["data"] == "0102"
    assert session.close() == []
