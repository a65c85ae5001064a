/* conv_shape.c - reading and checking the geometry of a convolution. */
#include "conv_shape.h"

#define SLOT_STRIDE 3
#define SLOT_PADDING 4
#define SLOT_DILATION 5
#define SLOT_TRANSPOSED 6
#define SLOT_OUTPUT_PADDING 7
#define SLOT_GROUPS 8

fl_status conv_read_list(const fl_kernel* kernel, const fl_call* call, uint32_t slot, uint32_t count, int64_t least,
                         int64_t absent, int64_t values[2], fl_error* err) {
  const fl_arg* arg = &call->args[slot];
  if (arg->count != count || arg->value.ints == NULL) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: argument %u has %u values, not %u", kernel->op, (unsigned)slot,
                   (unsigned)arg->count, (unsigned)count);
  }
  values[0] = absent;
  for (uint32_t i = 0; i < count; i++) {
    const int64_t value = arg->value.ints[i];
    if (value < least) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: argument %u has the value %lld, less than %lld", kernel->op,
                     (unsigned)slot, (long long)value, (long long)least);
    }
    if (value > INT32_MAX) {
      return fl_fail(err, FL_UNIMPLEMENTED, "%s: argument %u has the value %lld", kernel->op, (unsigned)slot,
                     (long long)value);
    }
    values[2 - count + i] = value;
  }
  return FL_OK;
}

/* Spatial sizes of a tensor, its last dimensions. */
static fl_status read_spatial(const fl_kernel* kernel, const fl_tensor* tensor, int64_t sizes[2], fl_error* err) {
  const uint32_t count = tensor->ndim - 2;
  sizes[0] = 1;
  for (uint32_t i = 0; i < count; i++) {
    const int64_t size = tensor->sizes[2 + i];
    if (size > INT32_MAX) {
      return fl_fail(err, FL_UNIMPLEMENTED, "%s: a spatial size of %lld", kernel->op, (long long)size);
    }
    sizes[2 - count + i] = size;
  }
  return FL_OK;
}

static fl_status check_channels(const fl_kernel* kernel, const conv_tensors* tensors, const conv_shape* shape,
                                fl_error* err) {
  const int64_t weight_channels = shape->transposed ? shape->in_channels : shape->out_channels;
  int fits = tensors->input->sizes[0] == tensors->out->sizes[0];
  fits = fits && tensors->input->sizes[1] == shape->in_channels * shape->groups;
  fits = fits && tensors->out->sizes[1] == shape->out_channels * shape->groups;
  fits = fits && tensors->weight->sizes[0] == weight_channels * shape->groups;
  if (!fits) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: channels, batch and groups do not fit each other", kernel->op);
  }
  return FL_OK;
}

fl_status conv_check_bias(const fl_kernel* kernel, const conv_shape* shape, const fl_tensor* tensor, fl_error* err) {
  if (tensor->ndim != 1 || tensor->sizes[0] != shape->out_channels * shape->groups) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: the bias has not one value per output channel", kernel->op);
  }
  return FL_OK;
}

static fl_status check_spatial(const fl_kernel* kernel, const conv_shape* shape, const int64_t output_padding[2],
                               fl_error* err) {
  for (int dim = 0; dim < 2; dim++) {
    const int64_t window = shape->dilation[dim] * (shape->taps[dim] - 1) + 1;
    int fits;
    if (shape->transposed) {
      const int64_t span = (shape->in[dim] - 1) * shape->stride[dim] - 2 * shape->padding[dim];
      fits = shape->in[dim] > 0 && span + window + output_padding[dim] == shape->out[dim];
    } else {
      const int64_t room = shape->in[dim] + 2 * shape->padding[dim] - window;
      fits = room >= 0 && room / shape->stride[dim] + 1 == shape->out[dim];
    }
    if (shape->taps[dim] < 1 || !fits) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: the spatial sizes do not fit each other", kernel->op);
    }
  }
  return FL_OK;
}

fl_status conv_shape_of(const fl_kernel* kernel, const fl_call* call, const conv_tensors* tensors, conv_shape* shape,
                        fl_error* err) {
  const fl_tensor* input = tensors->input;
  const fl_tensor* weight = tensors->weight;
  const fl_tensor* out = tensors->out;
  int64_t output_padding[2];
  if (input->ndim < 3 || input->ndim > 4) {
    return fl_fail(err, FL_UNIMPLEMENTED, "%s: an input of %u dimensions", kernel->op, (unsigned)input->ndim);
  }
  if (weight->ndim != input->ndim || out->ndim != input->ndim) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: input, weight and output differ in dimensions", kernel->op);
  }
  const uint32_t spatial = input->ndim - 2;
  FL_TRY(conv_read_list(kernel, call, SLOT_STRIDE, spatial, 1, 1, shape->stride, err));
  FL_TRY(conv_read_list(kernel, call, SLOT_PADDING, spatial, 0, 0, shape->padding, err));
  FL_TRY(conv_read_list(kernel, call, SLOT_DILATION, spatial, 1, 1, shape->dilation, err));
  FL_TRY(conv_read_list(kernel, call, SLOT_OUTPUT_PADDING, spatial, 0, 0, output_padding, err));
  FL_TRY(read_spatial(kernel, input, shape->in, err));
  FL_TRY(read_spatial(kernel, weight, shape->taps, err));
  FL_TRY(read_spatial(kernel, out, shape->out, err));
  shape->groups = call->args[SLOT_GROUPS].value.i;
  if (shape->groups < 1) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: %lld groups", kernel->op, (long long)shape->groups);
  }
  if (shape->groups > INT32_MAX || weight->sizes[0] > INT32_MAX || weight->sizes[1] > INT32_MAX) {
    return fl_fail(err, FL_UNIMPLEMENTED, "%s: 2^31 or more groups or channels", kernel->op);
  }
  shape->transposed = call->args[SLOT_TRANSPOSED].value.i != 0;
  shape->batch = input->sizes[0];
  shape->in_channels = shape->transposed ? weight->sizes[0] / shape->groups : weight->sizes[1];
  shape->out_channels = shape->transposed ? weight->sizes[1] : weight->sizes[0] / shape->groups;
  FL_TRY(check_channels(kernel, tensors, shape, err));
  return check_spatial(kernel, shape, output_padding, err);
}

conv_shape conv_reversed(const conv_shape* shape) {
  conv_shape reversed = *shape;
  reversed.transposed = !shape->transposed;
  reversed.in_channels = shape->out_channels;
  reversed.out_channels = shape->in_channels;
  for (int dim = 0; dim < 2; dim++) {
    reversed.in[dim] = shape->out[dim];
    reversed.out[dim] = shape->in[dim];
  }
  return reversed;
}

void conv_four_dims(ref_view* view) {
  if (view->ndim == 4) {
    return;
  }
  view->ndim = 4;
  view->sizes[3] = view->sizes[2];
  view->strides[3] = view->strides[2];
  view->sizes[2] = 1;
  view->strides[2] = 0;
}

/* The smallest integer not below numerator / denominator, for a positive denominator. */
static int64_t divide_up(int64_t numerator, int64_t denominator) {
  if (numerator <= 0) {
    return -(-numerator / denominator);
  }
  return (numerator + denominator - 1) / denominator;
}

static int64_t clamp(int64_t value, int64_t least, int64_t most) {
  const int64_t low = value < least ? least : value;
  return low > most ? most : low;
}

int64_t conv_range(const conv_shape* shape, int dim, int64_t tap, int64_t wide, int64_t narrow, int64_t* low,
                   int64_t* high) {
  const int64_t origin = tap * shape->dilation[dim] - shape->padding[dim];
  *low = clamp(divide_up(-origin, shape->stride[dim]), 0, narrow);
  *high = clamp(divide_up(wide - origin, shape->stride[dim]), *low, narrow);
  return origin;
}
