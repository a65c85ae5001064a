"""A device whose kernels, but for copies, take contiguous aligned tensors only, no numbers and nothing in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import apart
from .edited_reference import build

PICKY = {
    "kernels/kernel.h": [
        (".layouts = REF_ANY_LAYOUT,", ".layouts = REF_LAYOUTS, .data_align = REF_ALIGN,"),
        (".flags = REF_BASE_FLAGS | (FLAGS),", ".flags = REF_BASE_FLAGS,"),
        (
            "/* Row tables. ACC:",
            "#ifndef REF_LAYOUTS\n#define REF_LAYOUTS FL_LAYOUT_CONTIGUOUS\n#define REF_ALIGN PICKY_ALIGN\n#endif\n"
            "/* Row tables. ACC:",
        ),
    ],
    "kernels/copy_cast.c": [
        ('#include "move.h"', '#define REF_LAYOUTS REF_ANY_LAYOUT\n#define REF_ALIGN 0\n#include "move.h"')
    ],
    "kernels/kernel.c": [
        (
            "fl_status ref_check(const fl_kernel* kernel,",
            """
static int lies_well(const fl_kernel* kernel, const fl_tensor* t) {
  int64_t expected = 1;
  if (kernel->layouts & FL_LAYOUT_STRIDED || t->numel == 0) return 1;
  if ((t->base + t->byte_offset) % kernel->data_align != 0) return 0;
  for (uint32_t d = t->ndim; d-- > 0;) {
    if (t->sizes[d] != 1 && t->strides[d] != expected) return 0;
    expected *= t->sizes[d];
  }
  return 1;
}

static fl_status all_well(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  for (uint32_t i = 0; i < call->n_outs; i++) {
    if (!lies_well(kernel, call->outs[i])) return fl_fail(err, FL_INVALID_ARGUMENT, "%s: output %u", kernel->op, i);
  }
  for (uint32_t i = 0; i < call->n_args; i++) {
    const fl_arg* arg = &call->args[i];
    uint32_t count = arg->tag == FL_TAG_TENSOR ? 1 : arg->tag == FL_TAG_TENSOR_LIST ? arg->count : 0;
    for (uint32_t k = 0; k < count; k++) {
      const fl_tensor* t = arg->tag == FL_TAG_TENSOR ? arg->value.tensor : arg->value.tensors[k];
      int is_output = t->base != 0 && t->base == call->outs[0]->base && t->byte_offset == call->outs[0]->byte_offset;
      if (!lies_well(kernel, t)) return fl_fail(err, FL_INVALID_ARGUMENT, "%s: layout of %u", kernel->op, i);
      if (is_output && t->numel > 0) return fl_fail(err, FL_INVALID_ARGUMENT, "%s: %u is the output", kernel->op, i);
    }
  }
  return FL_OK;
}

fl_status ref_check(const fl_kernel* kernel,""",
        ),
        (
            "  FL_TRY(fl_check_call(call, n_args, n_outs, err));\n",
            "  FL_TRY(fl_check_call(call, n_args, n_outs, err));\n  FL_TRY(all_well(kernel, call, err));\n",
        ),
    ],
}

PROGRAM = """
import torch, torch_fl
from torch_fl import routing
from tests.runtime.layouts import LAYOUTS, REPEATED, buffer
from tests.runtime.routing import check, samples, test_layouts

DEVICE = "fl:0"
for name, operator in samples.OPERATORS.items():
    row = next((row for row in operator.rows if row[0] == "f32"), operator.rows[0])
    arguments, keywords = samples.sample(name, row)
    there = {"device": DEVICE} if name == "aten::arange.start_step" else {}
    got = check.natively(samples.overload(name), *samples.moved(arguments, DEVICE), **keywords, **there)
    check.agree(got, samples.overload(name)(*arguments, **keywords), context=name)

routing.reset_counters()
relaid = 0
for name, function in test_layouts.EVERYWHERE.items():
    for layout, view in {**LAYOUTS, **REPEATED}.items():
        mine, theirs = view(buffer(torch.float32)), view(buffer(torch.float32).to(DEVICE))
        check.agree(check.natively(function, theirs), function(mine), context=(name, layout))
counted = routing.counters()[DEVICE]
assert all(counted[f"aten::{name}"]["relayout"] > 0 for name in ("exp", "sum.dim_IntList", "bmm", "cat", "convolution"))
assert all(each.get("relayout", 0) <= each.get("native", 0) for each in counted.values()), counted

a, b = buffer(torch.float32).view(16, 16), buffer(torch.float32, 1).view(16, 16)
c, d = a.to(DEVICE), b.to(DEVICE)
for change in [
    lambda x, y: x.add_(y),
    lambda x, y: x.mul_(x),
    lambda x, y: x[::2, 1:].sub_(y[::2, 1:], alpha=3),
    lambda x, y: x.add_(2.5),
    lambda x, y: (2.5 - x).clamp_(-1, 1),
    lambda x, y: x == 3,
    lambda x, y: torch.where(x > y, x, 1.0),
    lambda x, y: torch.mm(x, y, out=x.new_empty(16, 16).t()),
    lambda x, y: torch.cat((x[1:], y[:, 1:].t(), x[:0]), out=x.new_empty(0)),
    lambda x, y: x.t().scatter_add_(0, torch.zeros(3, 3, dtype=torch.long, device=x.device), y[1:, 1:]),
]:
    check.agree(check.natively(change, c, d), change(a, b))
    check.agree(c, a)
print("done")
"""


@pytest.mark.parametrize("align", [64, 128, 65536])
def test_tensors_are_laid_out_anew_where_no_kernel_takes_them(tmp_path: Path, align: int) -> None:
    """What the pool aligns to anyway, a little more, and the most that a kernel may ask for."""
    edits = {
        name: [(old, new.replace("PICKY_ALIGN", str(align))) for old, new in pairs] for name, pairs in PICKY.items()
    }
    plugin = build(tmp_path, "picky", edits)
    assert "done" in apart.script(PROGRAM, TORCH_FL_VENDORS=str(plugin))
