"""Several commands in one exchange, and the bytes that move that way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch_fl_conformance.driver_client import Driver, DriverConfig
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.failures import DriverCrashed, DriverError, RuleViolated
from torch_fl_conformance.moves import Moves, call_command, copy_args, first_difference


@pytest.fixture
def driver(good_library: Path) -> Iterator[Driver]:
    made = Driver(DriverConfig(str(good_library), watchdog=10.0))
    yield made
    made.close()


def test_an_exchange_answers_every_command_in_order(driver: Driver) -> None:
    write = {"do": "host_write", "name": "h", "data": "0102"}
    commands: list[dict[str, Any]] = [
        {"do": "host_alloc", "name": "h", "bytes": 2},
        write,
        {"do": "host_read", "name": "h", "bytes": 2},
    ]
    answers = driver.execute_all(commands)
    assert answers[1:] == [{}, {"data": "0102"}]
    assert [noted["do"] for noted in driver.transcript.commands()] == ["describe", *(c["do"] for c in commands)]
    numbers = [noted["number"] for noted in driver.transcript.commands()[1:]]
    assert len(set(numbers)) == 3


def test_an_exchange_ends_behind_the_first_call_that_fails(driver: Driver) -> None:
    driver.describe()
    refused = call_command(
        "stream.create",
        "d0",
        {"struct": "fl_stream_create_args", "fields": {"priority": 2**31 - 1}},
        {"out": "fl_stream"},
    )
    answers = driver.execute_all(
        [call_command("device.sync", "d0", 0), refused, {"do": "host_alloc", "name": "h", "bytes": 2}]
    )
    assert [answer["status"] == 0 for answer in answers] == [True, False]
    with pytest.raises(DriverError, match="no host buffer 'h'"):
        driver.execute({"do": "host_free", "name": "h"})


def test_what_python_refuses_is_an_error_of_the_harness(driver: Driver) -> None:
    with pytest.raises(DriverError, match="unknown command"):
        driver.execute_all([{"do": "now"}, {"do": "no such thing"}])
    assert driver.execute_all([{"do": "now"}])


def test_a_crash_names_the_calls_that_it_may_have_been_in(driver: Driver) -> None:
    with pytest.raises(DriverCrashed, match="in now or exit") as caught:
        driver.execute_all([{"do": "now"}, {"do": "exit"}])
    assert caught.value.command["do"] == "batch"
    driver.describe()
    with pytest.raises(DriverCrashed, match=r"in call device\.count or call device\.sync$"):
        driver.execute_all(
            [call_command("device.count", {"out": "int32_t"}), call_command("device.sync", "d0", 0), {"do": "exit"}]
        )


@pytest.mark.parametrize("size", [1, 4096, 4097, 100_001])
def test_moves_carry_every_byte(driver: Driver, size: int) -> None:
    abi = Abi(driver)
    stream, block, buffer = abi.stream(), abi.alloc("d0", size + 3), abi.host_buffer(size)
    data = bytes(index * 7 % 256 for index in range(size))
    moves = Moves(abi).upload(stream, block, b"\xee" * (size + 3)).upload(stream, block, data, 1).write(buffer, data)
    moves.copy(stream, abi.copy_args(block, buffer, 1, 0))
    fetched = (
        moves.download(stream, block).download(stream, block, 1, size).read(buffer).read(buffer, size - 1, 1).run()
    )
    assert fetched == [data[:1] + data + b"\xee\xee", data, data, data[-1:]]


def test_buffers_of_moves_are_freed_and_those_of_a_failed_move_later(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    abi = Abi(driver)
    stream, block = abi.stream(), abi.alloc("d0", 8)
    before = set(abi._live)
    abi.upload(stream, block, bytes(8))
    assert set(abi._live) == before
    monkeypatch.setattr("torch_fl_conformance.moves.copy_args", lambda *a, **k: {**copy_args(*a, **k), "kind": 1})
    with pytest.raises(RuleViolated, match=r"memory\.copy returned INVALID_ARGUMENT"):
        abi.upload(stream, block, bytes(8))
    (left,) = set(abi._live) - before
    driver.execute({"do": "host_read", "name": left, "bytes": 8})
    abi.release_all()
    with pytest.raises(DriverError, match="no host buffer"):
        driver.execute({"do": "host_read", "name": left, "bytes": 8})


def test_the_first_difference_is_an_index() -> None:
    assert first_difference(b"abc", b"abc") == -1
    assert first_difference(b"abc", b"abd") == 2
    assert first_difference(b"xbc", b"abd") == 0
    assert first_difference(b"ab", b"abd") == 2
