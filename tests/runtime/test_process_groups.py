"""There is no process group for fl yet: whatever asks for one is told so in one line, and those of the CPU work."""

from __future__ import annotations

from pathlib import Path

import pytest

from .processes import prints

WAYS = {
    "none named": "dist.init_process_group(**world)",
    "by device": "dist.init_process_group(device_id=torch.device('fl:0'), **world)",
    "by name": "dist.init_process_group('fl', **world)",
    "by pairs": "dist.init_process_group('cpu:gloo,fl:fl', **world)",
    "default": "dist.init_process_group(dist.get_default_backend_for_device('fl'), **world)",
}


@pytest.mark.parametrize("way", WAYS)
def test_what_asks_for_one_is_told(way: str, tmp_path: Path) -> None:
    code = f"""
        import torch, torch_fl, torch.distributed as dist
        world = dict(init_method="file://{tmp_path}/store", rank=0, world_size=1)
        try:
            {WAYS[way]}
        except NotImplementedError as error:
            print(error)
    """
    (line,) = prints(code)
    assert line.startswith("no process group for fl yet: ")


def test_groups_of_the_cpu_work_and_take_no_fl_tensors(tmp_path: Path) -> None:
    code = f"""
        import torch, torch_fl, torch.distributed as dist
        dist.init_process_group("gloo", init_method="file://{tmp_path}/store", rank=0, world_size=1)
        x = torch.ones(3)
        dist.all_reduce(x)
        print(x.tolist())
        model = torch.nn.Linear(2, 2).to("fl:0")
        for use in (
            lambda: dist.all_reduce(x.to("fl:0")),
            lambda: dist.broadcast(x.to("fl:0"), 0),
            lambda: torch.nn.parallel.DistributedDataParallel(model),
        ):
            try:
                use()
            except RuntimeError as error:
                print(error)
        dist.destroy_process_group()
    """
    done, *refused = prints(code)
    assert done == "[1.0, 1.0, 1.0]"
    assert refused == ["No backend type associated with device type fl"] * 3
