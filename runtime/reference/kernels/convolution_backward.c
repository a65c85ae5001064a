/*
 * convolution_backward.c - the gradients of a convolution.
 *
 * grad_input is a convolution of grad_output with the same weight, back in the other direction. grad_weight is one
 * product for each group: narrow[channel, (n, position)] x window[(n, position), (channel, kh, kw)], where the window
 * moves over the wide side (conv_shape.h). grad_bias is the sum of a channel of grad_output over all images.
 */
#include "conv_product.h"
#include "reduce.h"

#define OUT_INPUT 0
#define OUT_WEIGHT 1
#define OUT_BIAS 2

typedef struct {
  conv_shape shape; /* of the convolution forward */
  ref_view grad_output;
  ref_view input;
  ref_view weight;
  ref_view grad_input; /* each of the three: no elements where it is unwanted */
  ref_view grad_weight;
  ref_view grad_bias;
  char* workspace;
} backward_work;

/* ---- The three gradients ---------------------------------------------------------------------------- */

static void input_gradient(const backward_work* work) {
  conv_work back = {.shape = conv_reversed(&work->shape), .workspace = work->workspace};
  back.input = work->grad_output;
  back.weight = work->weight;
  back.out = work->grad_input;
  conv_compute(&back);
}

/* The plain one of the convolution and its reverse: from the wide side to the narrow one. */
static conv_shape plain_shape(const conv_shape* shape) {
  return shape->transposed ? conv_reversed(shape) : *shape;
}

static void weight_gradient(const backward_work* work) {
  const conv_shape shape = plain_shape(&work->shape);
  const ref_view* wide = work->shape.transposed ? &work->grad_output : &work->input;
  const ref_view* narrow = work->shape.transposed ? &work->input : &work->grad_output;
  ref_gemm_source sums = {.dtype = narrow->dtype};
  ref_gemm_source image = {.dtype = wide->dtype, .gather_along = conv_gather_window};
  ref_gemm_store store = {.dtype = work->grad_weight.dtype};
  conv_window seen = {&shape, wide, 0};
  image.user = &seen;
  ref_axis_begin(&sums.lines);
  ref_axis_add(&sums.lines, shape.out_channels, narrow->strides[1]);
  ref_axis_of(narrow, 0xDu, &sums.depths);
  ref_axis_begin(&image.lines);
  ref_axis_add(&image.lines, shape.in_channels * shape.taps[0] * shape.taps[1], 1);
  image.depths = sums.depths;
  ref_axis_begin(&store.rows);
  ref_axis_add(&store.rows, shape.out_channels, work->grad_weight.strides[0]);
  store.columns = conv_last_dims(&work->grad_weight, 3);
  store.alpha = ref_gemm_one(store.dtype);
  const ref_gemm_sink sink = ref_gemm_store_sink(&store);
  for (int64_t group = 0; group < shape.groups; group++) {
    const int64_t channel = group * shape.out_channels;
    seen.channel = group * shape.in_channels;
    sums.data = conv_plane(narrow, 0, channel);
    store.out = conv_plane(&work->grad_weight, channel, 0);
    ref_gemm(&sums, &image, &sink, work->workspace);
  }
}

static void bias_gradient(const backward_work* work) {
  const ref_reduction channels = ref_reduction_of(&work->grad_output, 0xDu);
  const ref_lane lane = ref_lane_of(channels.dtype);
  const ref_value zero = {.i64 = 0}; /* all bits 0: zero in every lane */
  ref_axis out;
  double sums[REF_BLOCK];
  ref_axis_of(&work->grad_bias, ~0u, &out);
  for (int64_t first = 0; first < out.count; first += REF_BLOCK) {
    const int64_t left = out.count - first;
    const int64_t count = left < REF_BLOCK ? left : REF_BLOCK;
    ref_fill_values(lane, zero, count, sums);
    ref_fold_block(&channels, &ref_fold_sum[lane], first, count, NULL, sums);
    ref_store(work->grad_bias.dtype, work->grad_bias.data, &out, first, count, sums);
  }
}

static void backward_execute(const void* payload) {
  const backward_work* work = payload;
  if (work->grad_input.numel > 0) {
    input_gradient(work);
  }
  if (work->grad_weight.numel > 0) {
    weight_gradient(work);
  }
  if (work->grad_bias.numel > 0) {
    bias_gradient(work);
  }
}

/* ---- The entry -------------------------------------------------------------------------------------- */

static fl_status backward_check(const fl_kernel* kernel, const fl_call* call, conv_shape* shape, fl_error* err) {
  ref_types types;
  FL_TRY(ref_check(kernel, call, &types, err));
  const conv_tensors tensors = {call->args[1].value.tensor, call->args[2].value.tensor, call->args[0].value.tensor};
  FL_TRY(conv_shape_of(kernel, call, &tensors, shape, err));
  if (!ref_is_unwanted(call->outs[OUT_INPUT])) {
    FL_TRY(ref_check_shape(kernel, tensors.input, call->outs[OUT_INPUT], err));
  }
  if (!ref_is_unwanted(call->outs[OUT_WEIGHT])) {
    FL_TRY(ref_check_shape(kernel, tensors.weight, call->outs[OUT_WEIGHT], err));
  }
  if (!ref_is_unwanted(call->outs[OUT_BIAS])) {
    FL_TRY(conv_check_bias(kernel, shape, call->outs[OUT_BIAS], err));
  }
  return FL_OK;
}

/* The gradients are made one after the other, in the same scratch. */
static uint64_t workspace_of(const conv_shape* shape, const fl_call* call) {
  const ref_lane lane = ref_lane_of(call->outs[OUT_INPUT]->dtype);
  const conv_shape plain = plain_shape(shape);
  const conv_shape back = conv_reversed(shape);
  const int64_t lines = plain.in_channels * plain.taps[0] * plain.taps[1];
  const int64_t positions = plain.batch * plain.out[0] * plain.out[1];
  const int64_t for_input = call->outs[OUT_INPUT]->numel == 0 ? 0 : conv_workspace(&back, lane);
  const int64_t for_weight =
      call->outs[OUT_WEIGHT]->numel == 0 ? 0 : ref_gemm_workspace(lane, plain.out_channels, lines, positions);
  return (uint64_t)(for_input > for_weight ? for_input : for_weight);
}

static fl_status backward_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                               fl_error* err) {
  conv_shape shape;
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(backward_check(kernel, call, &shape, err));
  fl_plan_set(out, workspace_of(&shape, call), 64, 0);
  return FL_OK;
}

static fl_status backward_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  backward_work work;
  FL_TRY(backward_check(kernel, call, &work.shape, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.grad_output, err));
  FL_TRY(ref_view_of(stream, call->args[1].value.tensor, &work.input, err));
  FL_TRY(ref_view_of(stream, call->args[2].value.tensor, &work.weight, err));
  FL_TRY(ref_view_of(stream, call->outs[OUT_INPUT], &work.grad_input, err));
  FL_TRY(ref_view_of(stream, call->outs[OUT_WEIGHT], &work.grad_weight, err));
  FL_TRY(ref_view_of(stream, call->outs[OUT_BIAS], &work.grad_bias, err));
  FL_TRY(ref_workspace(stream, call, workspace_of(&work.shape, call), &work.workspace, err));
  if (work.grad_input.numel == 0 && work.grad_weight.numel == 0 && work.grad_bias.numel == 0) {
    return FL_OK;
  }
  conv_four_dims(&work.grad_output);
  conv_four_dims(&work.input);
  conv_four_dims(&work.weight);
  conv_four_dims(&work.grad_input);
  conv_four_dims(&work.grad_weight);
  return ref_submit(stream, backward_execute, &work, sizeof work, err);
}

static const ref_signature signature = {
    .args = {{REF_TENSOR, 0},
             {REF_TENSOR, 0},
             {REF_TENSOR, 0},
             {REF_INT_LIST, 0},
             {REF_INT_LIST, 0},
             {REF_INT_LIST, 0},
             {REF_BOOL, 0},
             {REF_INT_LIST, 0},
             {REF_INT, 0}},
    .outs = {{REF_TENSOR, 0}, {REF_TENSOR, 0}, {REF_TENSOR, 0}},
};

const fl_kernel ref_kernels_convolution_backward[] = {
    REF_KERNEL("convolution_backward", 1, ref_rows_sums, FL_TIER_ACCURATE, 0, &signature, backward_plan, backward_run),
};
const uint32_t ref_kernels_convolution_backward_count = REF_COUNT(ref_kernels_convolution_backward);
