"""A device whose memory the host may use: the CPU tier works in it and copies nothing."""

from __future__ import annotations

from .processes import ROOT, prints, run_python

MINIMAL = ROOT / "examples" / "minimal_vendor"


def test_the_cpu_works_in_the_devices_memory() -> None:
    run_python("import torch_fl; torch_fl.list_devices()", TORCH_FL_VENDORS=str(MINIMAL))  # which says what it builds
    lines = prints(
        """
        import torch, torch_fl
        from torch_fl import _bridge

        x, y = torch.arange(1.0, 7).view(2, 3), torch.empty(2, 3)
        on_device, out = x.to("fl:0"), y.to("fl:0")
        torch.lgamma(on_device, out=out)
        print(torch.equal(out.cpu(), x.lgamma()))
        on_device.t()[1:].lgamma_()
        x.t()[1:].lgamma_()
        print(torch.equal(on_device.cpu(), x))
        base = torch.arange(-4.0, 4)
        of_device = base.to("fl:0")
        base[:4].copysign_(base[4:])
        of_device[:4].copysign_(of_device[4:])
        print(torch.equal(of_device.cpu(), base))
        print({moved for *_, moved in _bridge.fallback_counters()})

        grown = torch.empty(1, device="fl:0").resize_(0)
        torch.lgamma(torch.ones(100, device="fl:0"), out=grown)
        print(grown.shape == (100,), grown.eq(0).all().item())
        print(torch.nonzero(of_device > 0).tolist())
        """,
        TORCH_FL_VENDORS=str(MINIMAL),
        TORCH_FL_ON_FALLBACK="ignore",
        TORCH_FL_GENERIC_KERNEL="0",
    )
    assert lines == ["True", "True", "True", "{0}", "True True", "[[0], [1], [2], [3], [5], [6], [7]]"]
