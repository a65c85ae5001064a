/* engine_check.c - the stream engine where the system has no thread left. */
#include "harness.h"

/* Fails, and looks at what a device sync of another thread would see in the meantime. */
static int no_thread(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument);
#define pthread_create no_thread
#include "torch_fl/sdk/stream_engine.h"
#include "torch_fl/sdk/stream_wait.h"

static fl_engine_group group;
static int asked;

static int no_thread(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  (void)thread, (void)attributes, (void)start, (void)argument;
  CHECK(group.first == NULL); /* its vendor frees the stream when this fails */
  EXPECT(FL_OK, fl_engine_group_sync, &group, 0);
  asked++;
  return EAGAIN;
}

static void released(fl_engine_stream* stream) { free(stream); }

int main(void) {
  fl_engine_group_init(&group, FL_EXEC_ASYNC, released, NULL);
  fl_engine_stream* stream = calloc(1, sizeof *stream);
  EXPECT(FL_OUT_OF_RESOURCES, fl_engine_stream_start, stream, &group);
  free(stream);
  CHECK(asked == 1 && group.first == NULL);
  EXPECT(FL_OK, fl_engine_group_sync, &group, 0);
  fl_engine_group_destroy(&group);
  return 0;
}
