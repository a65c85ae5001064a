"""Which of several kernels serves a call: tier, priority, name, determinism, a plan's refusal; what the user wishes."""

from __future__ import annotations

from pathlib import Path

from . import apart
from .edited_reference import build

#: Kernels called add.Tensor that subtract: the result says who was chosen.
VARIANTS = {
    "kernels/pointwise_binary.c": [
        (
            "const fl_kernel ref_kernels_pointwise_binary[] = {",
            """
static fl_status refuse(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out, fl_error* err) {
  (void)device, (void)call, (void)out;
  return fl_fail(err, FL_UNIMPLEMENTED, "%s: not today", kernel->op);
}

static fl_status fail(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out, fl_error* err) {
  (void)device, (void)call, (void)out;
  return fl_fail(err, FL_INTERNAL, "%s: broken", kernel->op);
}

#define ONE_ROW(NAME, DTYPE) static const fl_kernel_row NAME[] = {REF_PLAIN_ROW(DTYPE)};
ONE_ROW(row_f32, FL_DTYPE_F32)
ONE_ROW(row_f64, FL_DTYPE_F64)
ONE_ROW(row_f16, FL_DTYPE_F16)
ONE_ROW(row_bf16, FL_DTYPE_BF16)
ONE_ROW(row_i64, FL_DTYPE_I64)
ONE_ROW(row_i32, FL_DTYPE_I32)
ONE_ROW(row_u8, FL_DTYPE_U8)

#define VARIANT(OP, VARIANT_NAME, ROWS, TIER, PRIORITY, FLAGS, USER, PLAN)                                  \\
  {                                                                                                       \\
    .struct_size = sizeof(fl_kernel), .kind = FL_KIND_KERNEL, .op = "aten::" OP, .variant = VARIANT_NAME,  \\
    .revision = 1, .n_types = 1, .rows = ROWS, .n_rows = 1, .row_stride = sizeof(fl_kernel_row),           \\
    .layouts = REF_ANY_LAYOUT, .max_ndim = REF_MAX_NDIM, .flags = FLAGS, .tier = TIER,                     \\
    .priority = PRIORITY, .user = USER, .plan = PLAN, .run = ref_pointwise_run,                            \\
  }
#define SOUND (REF_BASE_FLAGS | SCALAR_TOO)

const fl_kernel ref_kernels_pointwise_binary[] = {
    VARIANT("add.Tensor", "quick", row_f32, FL_TIER_FAST, 9, SOUND, &sub_op, ref_pointwise_plan),
    VARIANT("add.Tensor", "moody", row_i64, FL_TIER_ACCURATE, 5, FL_KERNEL_PLAN_PURE | SCALAR_TOO, &sub_op,
            ref_pointwise_plan),
    VARIANT("add.Tensor", "unwilling", row_f64, FL_TIER_ACCURATE, 7, SOUND, &sub_op, refuse),
    VARIANT("add.Tensor", "a", row_i32, FL_TIER_ACCURATE, 0, SOUND, &sub_op, ref_pointwise_plan),
    VARIANT("add.Tensor", "z", row_u8, FL_TIER_ACCURATE, 0, SOUND, &sub_op, ref_pointwise_plan),
    VARIANT("add.Tensor", "broken", row_f16, FL_TIER_ACCURATE, 1, SOUND, &sub_op, fail),
    VARIANT("add.Tensor", "last", row_bf16, FL_TIER_ACCURATE, -1, SOUND, &sub_op, ref_pointwise_plan),
    VARIANT("div.Tensor", "unwilling", row_f64, FL_TIER_ACCURATE, 7, REF_BASE_FLAGS, &div_op, refuse),""",
        ),
    ],
    "kernels/contraction.c": [
        (
            '    REF_KERNEL("bmm",',
            """    QUICK("mm"),
    QUICK("bmm"),
    QUICK("addmm"),
    QUICK("convolution"),
    REF_KERNEL("bmm",""",
        ),
        (
            "const fl_kernel ref_kernels_contraction[] = {",
            """
static fl_status quick_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                            fl_error* err) {
  (void)device, (void)call, (void)out;
  return fl_fail(err, FL_INTERNAL, "%s: the fast one was chosen", kernel->op);
}

/* All rows of matrix products; a plan and no more. */
#define QUICK(OP)                                                                                            \\
  {                                                                                                          \\
    .struct_size = sizeof(fl_kernel), .kind = FL_KIND_KERNEL, .op = "aten::" OP, .variant = "quick",         \\
    .revision = 1, .n_types = 1, .rows = rows, .n_rows = sizeof rows / sizeof *rows,                         \\
    .row_stride = sizeof(fl_kernel_row), .layouts = REF_ANY_LAYOUT, .max_ndim = REF_MAX_NDIM,                \\
    .flags = REF_BASE_FLAGS, .tier = FL_TIER_FAST, .priority = 1, .user = &op_mm, .plan = quick_plan,        \\
    .run = contraction_run,                                                                                  \\
  }

const fl_kernel ref_kernels_contraction[] = {""",
        ),
    ],
}

PROGRAM = """
import contextlib, pytest, torch, torch_fl, warnings
from torch_fl import routing

warnings.simplefilter("ignore")

def chosen(dtype):
    x = torch.tensor([5, 7], dtype=dtype).to("fl:0")
    return {8: "adds", 2: "subtracts"}[int((x + torch.tensor([3, 3], dtype=dtype).to("fl:0")).cpu()[0])]

# Tier FAST only on the user's word, then by priority.
assert chosen(torch.float32) == "adds"
with routing.wishes(admit_fast=True):
    assert chosen(torch.float32) == "subtracts"
assert chosen(torch.float32) == "adds"

# torch.set_float32_matmul_precision speaks of matrix products of float32 alone.
def products(dtype):
    one = torch.eye(3, dtype=dtype, device="fl:0")
    batch, image = one.expand(2, 3, 3), one.expand(1, 3, 3, 3)
    return {
        "mm": lambda: one @ one,
        "bmm": lambda: batch @ batch,
        "addmm": lambda: torch.addmm(one, one, one),
        "convolution": lambda: torch.nn.functional.conv2d(image, one.view(1, 1, 3, 3).expand(3, 3, 3, 3)),
    }

def fast(dtype):
    chosen = []
    for name, product in products(dtype).items():
        try:
            product()
        except RuntimeError as failure:
            assert f"aten::{name}: the fast one was chosen" in str(failure), failure
            chosen.append(name)
    return chosen

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
assert [fast(dtype) for dtype in DTYPES] == [[]] * 4
for precision in ("high", "medium"):
    torch.set_float32_matmul_precision(precision)
    assert [fast(dtype) for dtype in DTYPES] == [["mm", "bmm", "addmm"], [], [], []]
    assert chosen(torch.float32) == "adds"
torch.set_float32_matmul_precision("highest")
assert [fast(dtype) for dtype in DTYPES] == [[]] * 4
with routing.wishes(admit_fast=True):
    assert all(fast(dtype) == ["mm", "bmm", "addmm", "convolution"] for dtype in DTYPES)

# Priority; determinism by either word.
assert chosen(torch.int64) == "subtracts"
with routing.wishes(deterministic=True):
    assert chosen(torch.int64) == "adds"
try:
    with routing.wishes(cpu=False, generic="no"):
        raise AssertionError("a word was taken for a truth value")
except TypeError as refused:
    assert str(refused) == "wishes(generic='no'): takes True or False"
assert routing.wish("cpu")
torch.use_deterministic_algorithms(True)
assert chosen(torch.int64) == "adds"
torch.use_deterministic_algorithms(False)
assert chosen(torch.int64) == "subtracts"

# A plan that refuses passes the call on; equal priorities go by name, "a" before "generic" before "z".
assert chosen(torch.float64) == "adds"
assert chosen(torch.int32) == "subtracts"
assert chosen(torch.uint8) == "adds"
assert chosen(torch.bfloat16) == "adds"

# A plan that fails says so, with the vendor's words and the call.
with pytest.raises(RuntimeError) as failure:
    chosen(torch.float16)
for word in ("fl:0", "aten::add.Tensor", "f16[2]", "'broken'", "aten::add.Tensor: broken", "FL_INTERNAL"):
    assert word in str(failure.value), (word, str(failure.value))

# Disabled operators and tiers step down, visibly.
routing.reset_counters()
routing.disable("aten::add.Tensor", torch.device("fl:0"))
assert chosen(torch.float32) == "adds"
counted = routing.counters()["fl:0"]["aten::add.Tensor"]
assert counted["native"] == 0 and counted["generic"] + counted["cpu"] > 0, counted
with routing.wishes(generic=False, cpu=False), pytest.raises(NotImplementedError) as failure:
    chosen(torch.float32)
for word in ("aten::add.Tensor", "f32[2]", "fl:0", "tier"):
    assert word in str(failure.value), (word, str(failure.value))
assert routing.counters()["fl:0"]["aten::add.Tensor"]["errors"] == 1
routing.disable("aten::add.Tensor", "fl:0", False)
with routing.wishes(native=False):
    assert chosen(torch.float64) == "adds"
assert routing.wish("native")
assert chosen(torch.float64) == "adds"

assert routing.supports("aten::mm", [torch.float32])
assert routing.supports("aten::sum.dim_IntList", [torch.int32, torch.int64])
assert not routing.supports("aten::sum.dim_IntList", [torch.int32, torch.int32])
assert not routing.supports("aten::div.Tensor", [torch.int32])
with pytest.raises(ValueError, match="aten::nothing"):
    routing.supports("aten::nothing", [torch.int32])
print("done")
"""


def test_order_of_kernels_and_wishes(tmp_path: Path) -> None:
    plugin = build(tmp_path, "variants", VARIANTS)
    assert "done" in apart.script(PROGRAM, TORCH_FL_VENDORS=str(plugin))
