/*
 * table.c - the kernel table: the lists of all kernel files, sorted by op, revision and variant, so that its bytes
 * depend on nothing but the sources [FL-KERNEL-001, 002]. Built on first use, the same for every device.
 */
#include <stdlib.h>

#include "core.h"

typedef struct {
  const fl_kernel* kernels;
  const uint32_t* count;
} kernel_list;

static const kernel_list lists[] = {
    {ref_kernels_pointwise_unary, &ref_kernels_pointwise_unary_count},
    {ref_kernels_pointwise_binary, &ref_kernels_pointwise_binary_count},
    {ref_kernels_pointwise_compare, &ref_kernels_pointwise_compare_count},
    {ref_kernels_pointwise_training, &ref_kernels_pointwise_training_count},
    {ref_kernels_copy_cast, &ref_kernels_copy_cast_count},
    {ref_kernels_movement, &ref_kernels_movement_count},
    {ref_kernels_index, &ref_kernels_index_count},
    {ref_kernels_scatter, &ref_kernels_scatter_count},
    {ref_kernels_random, &ref_kernels_random_count},
    {ref_kernels_dropout, &ref_kernels_dropout_count},
    {ref_kernels_reduction, &ref_kernels_reduction_count},
    {ref_kernels_contraction, &ref_kernels_contraction_count},
    {ref_kernels_convolution, &ref_kernels_convolution_count},
    {ref_kernels_convolution_backward, &ref_kernels_convolution_backward_count},
    {ref_kernels_softmax, &ref_kernels_softmax_count},
    {ref_kernels_layer_norm, &ref_kernels_layer_norm_count},
    {ref_kernels_average_pool, &ref_kernels_average_pool_count},
    {ref_kernels_max_pool, &ref_kernels_max_pool_count},
    {ref_kernels_max_pool_backward, &ref_kernels_max_pool_backward_count},
    {ref_kernels_softmax_backward, &ref_kernels_softmax_backward_count},
    {ref_kernels_nll_loss, &ref_kernels_nll_loss_count},
    {ref_kernels_nll_loss_backward, &ref_kernels_nll_loss_backward_count},
    {ref_kernels_batch_norm, &ref_kernels_batch_norm_count},
    {ref_kernels_batch_norm_backward, &ref_kernels_batch_norm_backward_count},
};
#define N_LISTS (sizeof lists / sizeof lists[0])

static pthread_once_t table_once = PTHREAD_ONCE_INIT;
static fl_kernel_table table = {
    .struct_size = sizeof(fl_kernel_table),
    .kind = FL_KIND_KERNEL_TABLE,
    .entry_stride = sizeof(fl_kernel),
    .count = 0,
    .entries = NULL, /* stays NULL when there is no host memory */
};

static int compare_kernels(const void* left, const void* right) {
  const fl_kernel* a = left;
  const fl_kernel* b = right;
  int by_op = strcmp(a->op, b->op);
  if (by_op != 0) return by_op;
  if (a->revision != b->revision) return a->revision < b->revision ? -1 : 1;
  return strcmp(a->variant, b->variant);
}

static void build_table(void) {
  uint32_t count = 0;
  for (size_t i = 0; i < N_LISTS; i++) count += *lists[i].count;
  fl_kernel* entries = malloc((size_t)count * sizeof *entries);
  if (entries == NULL) return;
  uint32_t filled = 0;
  for (size_t i = 0; i < N_LISTS; i++) {
    memcpy(entries + filled, lists[i].kernels, *lists[i].count * sizeof *entries);
    filled += *lists[i].count;
  }
  qsort(entries, count, sizeof *entries, compare_kernels);
  table.count = count;
  table.entries = entries;
}

fl_status ref_kernels(fl_device device, const fl_kernel_table** out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_pointer(out, "out", err));
  pthread_once(&table_once, build_table);
  if (table.entries == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for the kernel table");
  *out = &table;
  return FL_OK;
}
