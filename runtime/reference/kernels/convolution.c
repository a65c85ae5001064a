/* convolution.c - the operator aten::convolution; the work is in conv_plain.c and conv_scatter.c. */
#include "conv_product.h"

static void conv_execute(const void* payload) {
  conv_compute(payload);
}

static fl_status conv_check(const fl_kernel* kernel, const fl_call* call, conv_shape* shape, fl_error* err) {
  ref_types types;
  FL_TRY(ref_check(kernel, call, &types, err));
  const conv_tensors tensors = {call->args[0].value.tensor, call->args[1].value.tensor, call->outs[0]};
  FL_TRY(conv_shape_of(kernel, call, &tensors, shape, err));
  if (call->args[2].tag == FL_TAG_TENSOR) {
    return conv_check_bias(kernel, shape, call->args[2].value.tensor, err);
  }
  return FL_OK;
}

static uint64_t workspace_of(const conv_shape* shape, const fl_tensor* out) {
  return out->numel == 0 ? 0 : (uint64_t)conv_workspace(shape, ref_lane_of(out->dtype));
}

static fl_status conv_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                           fl_error* err) {
  conv_shape shape;
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(conv_check(kernel, call, &shape, err));
  fl_plan_set(out, workspace_of(&shape, call->outs[0]), 64, 0);
  return FL_OK;
}

static fl_status conv_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  conv_work work;
  FL_TRY(conv_check(kernel, call, &work.shape, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.input, err));
  FL_TRY(ref_view_of(stream, call->args[1].value.tensor, &work.weight, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  work.has_bias = call->args[2].tag == FL_TAG_TENSOR;
  work.bias = work.out;
  if (work.has_bias) {
    FL_TRY(ref_view_of(stream, call->args[2].value.tensor, &work.bias, err));
  }
  FL_TRY(ref_workspace(stream, call, workspace_of(&work.shape, call->outs[0]), &work.workspace, err));
  if (work.out.numel == 0) {
    return FL_OK;
  }
  conv_four_dims(&work.input);
  conv_four_dims(&work.weight);
  conv_four_dims(&work.out);
  return ref_submit(stream, conv_execute, &work, sizeof work, err);
}

static const ref_signature signature = {
    .args = {{REF_TENSOR, 0},
             {REF_TENSOR, 0},
             {REF_TENSOR_OR_NONE, 0},
             {REF_INT_LIST, 0},
             {REF_INT_LIST, 0},
             {REF_INT_LIST, 0},
             {REF_BOOL, 0},
             {REF_INT_LIST, 0},
             {REF_INT, 0}},
    .outs = {{REF_TENSOR, 0}},
};

const fl_kernel ref_kernels_convolution[] = {
    REF_KERNEL("convolution", 1, ref_rows_sums, FL_TIER_ACCURATE, 0, &signature, conv_plan, conv_run),
};
const uint32_t ref_kernels_convolution_count = REF_COUNT(ref_kernels_convolution);
