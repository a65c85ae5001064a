/* stream_check.c - order, events, host tasks, failures and the life of streams of the reference vendor. */
#include <fenv.h>
#include <signal.h>
#include <sys/wait.h>

#include "harness.h"

#define MS 1000000ull

static fl_device devices[2];

static void fill_word(fl_stream stream, uint64_t base, uint32_t value) {
  EXPECT(FL_OK, plugin->memory->fill, stream, base, 0, value, 4, 1);
}

static uint32_t word(fl_device device, uint64_t base) {
  fl_stream stream = new_stream(device);
  uint32_t value = 0;
  download(stream, device, base, &value, 4);
  EXPECT(FL_OK, plugin->stream->destroy, stream);
  return value;
}

static void a_stalled_stream_takes_work_and_stops_no_other(void) {
  gate held = GATE_INITIALIZER;
  fl_stream stalled = new_stream(devices[0]);
  fl_stream other = new_stream(devices[0]);
  fl_event event = new_event(devices[0], 0);
  uint64_t base = new_block(devices[0], 64);
  fill_word(other, base, 1);
  EXPECT(FL_OK, plugin->stream->sync, other, UINT64_MAX);
  EXPECT(FL_OK, plugin->stream->host_task, stalled, gate_task, &held);
  gate_await_entry(&held);
  for (int i = 0; i < 1000; i++) EXPECT(FL_NOT_READY, plugin->stream->query, stalled);
  counter counted = {0, -1};
  uint32_t source = 77;
  for (uint32_t i = 0; i < 400; i++) {
    fill_word(stalled, base, i);
    EXPECT(FL_OK, plugin->event->record, event, stalled);
    EXPECT(FL_OK, plugin->stream->wait_event, stalled, event);
    EXPECT(FL_OK, plugin->stream->host_task, stalled, count_task, &counted);
  }
  upload(stalled, devices[0], base, &source, 4);
  source = 78; /* captured before the copy returned */
  EXPECT(FL_TIMEOUT, plugin->stream->sync, stalled, 0);
  EXPECT(FL_TIMEOUT, plugin->stream->sync, stalled, 2 * MS);
  EXPECT(FL_TIMEOUT, plugin->device->sync, devices[0], 2 * MS);
  EXPECT(FL_OK, plugin->device->sync, devices[1], 0);
  EXPECT(FL_TIMEOUT, plugin->event->sync, event, 0);
  EXPECT(FL_NOT_READY, plugin->event->query, event);
  CHECK(word(devices[0], base) == 1 && atomic_load(&counted.calls) == 0);
  gate_open(&held);
  EXPECT(FL_OK, plugin->device->sync, devices[0], UINT64_MAX);
  EXPECT(FL_OK, plugin->stream->query, stalled);
  EXPECT(FL_OK, plugin->event->query, event);
  CHECK(word(devices[0], base) == 77 && atomic_load(&counted.calls) == 400 && atomic_load(&counted.status) == FL_OK);
  EXPECT(FL_OK, plugin->stream->destroy, stalled);
  EXPECT(FL_OK, plugin->stream->destroy, other);
  EXPECT(FL_OK, plugin->event->destroy, event);
  EXPECT(FL_OK, plugin->memory->free, devices[0], base, 64);
}

static void a_wait_is_bound_to_the_record_it_saw(fl_device waiting) {
  gate first = GATE_INITIALIZER;
  gate second = GATE_INITIALIZER;
  fl_stream s1 = new_stream(devices[0]);
  fl_stream s2 = new_stream(waiting);
  fl_event event = new_event(devices[0], 0);
  uint64_t base = new_block(waiting, 64);
  EXPECT(FL_OK, plugin->event->query, event);
  EXPECT(FL_OK, plugin->event->sync, event, 0);
  EXPECT(FL_OK, plugin->stream->wait_event, s2, event);
  fill_word(s2, base, 5);
  EXPECT(FL_OK, plugin->stream->sync, s2, UINT64_MAX);
  EXPECT(FL_OK, plugin->stream->host_task, s1, gate_task, &first);
  EXPECT(FL_OK, plugin->event->record, event, s1);
  EXPECT(FL_OK, plugin->stream->wait_event, s2, event);
  fill_word(s2, base, 6);
  EXPECT(FL_OK, plugin->stream->host_task, s1, gate_task, &second);
  EXPECT(FL_OK, plugin->event->record, event, s1);
  EXPECT(FL_TIMEOUT, plugin->stream->sync, s2, 5 * MS);
  CHECK(word(waiting, base) == 5);
  gate_open(&first);
  EXPECT(FL_OK, plugin->stream->sync, s2, UINT64_MAX);
  CHECK(word(waiting, base) == 6);
  EXPECT(FL_NOT_READY, plugin->event->query, event);
  EXPECT(FL_OK, plugin->stream->wait_event, s2, event);
  fill_word(s2, base, 7);
  EXPECT(FL_OK, plugin->event->destroy, event);
  EXPECT(FL_TIMEOUT, plugin->stream->sync, s2, 5 * MS);
  gate_open(&second);
  EXPECT(FL_OK, plugin->stream->sync, s2, UINT64_MAX);
  CHECK(word(waiting, base) == 7);
  EXPECT(FL_OK, plugin->stream->destroy, s1);
  EXPECT(FL_OK, plugin->stream->destroy, s2);
  EXPECT(FL_OK, plugin->memory->free, waiting, base, 64);
}

static void destroyed_streams_finish_their_work(void) {
  gate held = GATE_INITIALIZER;
  counter counted = {0, -1};
  fl_stream stream = new_stream(devices[0]);
  uint64_t base = new_block(devices[0], 64);
  EXPECT(FL_OK, plugin->stream->host_task, stream, gate_task, &held);
  for (int i = 0; i < 10; i++) EXPECT(FL_OK, plugin->stream->host_task, stream, count_task, &counted);
  fill_word(stream, base, 9);
  EXPECT(FL_OK, plugin->stream->destroy, stream);
  EXPECT(FL_TIMEOUT, plugin->device->sync, devices[0], 2 * MS);
  gate_open(&held);
  EXPECT(FL_OK, plugin->device->sync, devices[0], UINT64_MAX);
  CHECK(atomic_load(&counted.calls) == 10 && word(devices[0], base) == 9);
  EXPECT(FL_OK, plugin->memory->free, devices[0], base, 64);
}

static void records_are_timed_when_they_execute(void) {
  const fl_extension* found = NULL;
  EXPECT(FL_OK, plugin->get_extension, "fl.fault", 1, &found);
  const fl_fault_api* fault = (const fl_fault_api*)found;
  fl_stream stream = new_stream(devices[0]);
  fl_event start = new_event(devices[0], FL_EVENT_TIMING);
  fl_event end = new_event(devices[0], FL_EVENT_TIMING);
  fl_event plain = new_event(devices[0], 0);
  fl_event foreign = new_event(devices[1], FL_EVENT_TIMING);
  uint64_t base = new_block(devices[0], 64);
  int64_t elapsed = -5;
  EXPECT(FL_FAILED_PRECONDITION, plugin->event->elapsed, start, end, &elapsed);
  EXPECT(FL_INVALID_ARGUMENT, plugin->event->record, foreign, stream);
  EXPECT(FL_OK, plugin->event->record, start, stream);
  EXPECT(FL_OK, fault->delay_next, stream, 50 * MS);
  fill_word(stream, base, 3);
  EXPECT(FL_OK, plugin->event->record, end, stream);
  EXPECT(FL_OK, plugin->event->record, plain, stream);
  if (!is_inline) EXPECT(FL_NOT_READY, plugin->event->elapsed, start, end, &elapsed);
  EXPECT(FL_OK, plugin->stream->sync, stream, UINT64_MAX);
  EXPECT(FL_FAILED_PRECONDITION, plugin->event->elapsed, start, plain, &elapsed);
  EXPECT(FL_FAILED_PRECONDITION, plugin->event->elapsed, start, foreign, &elapsed);
  CHECK(elapsed == -5);
  EXPECT(FL_OK, plugin->event->elapsed, start, end, &elapsed);
  CHECK(elapsed >= (int64_t)(50 * MS));
  EXPECT(FL_OK, plugin->event->destroy, start);
  EXPECT(FL_OK, plugin->event->destroy, end);
  EXPECT(FL_OK, plugin->event->destroy, plain);
  EXPECT(FL_OK, plugin->event->destroy, foreign);
  EXPECT(FL_OK, plugin->stream->destroy, stream);
  EXPECT(FL_OK, plugin->memory->free, devices[0], base, 64);
}

static void failures_stick_and_follow_waits(void) {
  const fl_extension* found = NULL;
  EXPECT(FL_OK, plugin->get_extension, "fl.fault", 1, &found);
  const fl_fault_api* fault = (const fl_fault_api*)found;
  gate held = GATE_INITIALIZER;
  gate_open(&held);
  fl_stream failing = new_stream(devices[0]);
  fl_stream waiter = new_stream(devices[1]);
  fl_stream healthy = new_stream(devices[0]);
  fl_event before = new_event(devices[0], 0);
  fl_event after = new_event(devices[0], 0);
  uint64_t base = new_block(devices[0], 64);
  counter counted = {0, -1};
  if (!is_inline) held.open = 0;
  EXPECT(FL_INVALID_ARGUMENT, fault->fail_next, failing, FL_INTERNAL);
  EXPECT(FL_OK, plugin->stream->host_task, failing, gate_task, &held);
  EXPECT(FL_OK, plugin->event->record, before, failing);
  EXPECT(FL_OK, fault->fail_next, failing, FL_ASYNC_FAILURE);
  EXPECT(is_inline ? FL_ASYNC_FAILURE : FL_OK, plugin->memory->fill, failing, base, 0, 1, 4, 1);
  EXPECT(is_inline ? FL_ASYNC_FAILURE : FL_OK, plugin->event->record, after, failing);
  EXPECT(is_inline ? FL_ASYNC_FAILURE : FL_OK, plugin->stream->wait_event, waiter, after);
  fl_status queued = plugin->stream->host_task(failing, count_task, &counted, NULL);
  CHECK(queued == (is_inline ? FL_ASYNC_FAILURE : FL_OK));
  gate_open(&held);
  EXPECT(FL_ASYNC_FAILURE, plugin->stream->sync, failing, UINT64_MAX);
  CHECK(atomic_load(&counted.calls) == (is_inline ? 0 : 1));
  CHECK(is_inline || atomic_load(&counted.status) == FL_ASYNC_FAILURE);
  EXPECT(FL_ASYNC_FAILURE, plugin->stream->sync, waiter, UINT64_MAX);
  for (int i = 0; i < 3; i++) {
    EXPECT(FL_ASYNC_FAILURE, plugin->stream->query, failing);
    EXPECT(FL_ASYNC_FAILURE, plugin->memory->fill, failing, base, 0, 1, 4, 1);
    EXPECT(FL_ASYNC_FAILURE, plugin->stream->host_task, failing, count_task, &counted);
    EXPECT(FL_ASYNC_FAILURE, plugin->event->query, after);
    EXPECT(FL_ASYNC_FAILURE, plugin->event->sync, after, UINT64_MAX);
    EXPECT(FL_OK, plugin->event->query, before);
  }
  CHECK(atomic_load(&counted.calls) == (is_inline ? 0 : 1));
  EXPECT(FL_ASYNC_FAILURE, plugin->event->record, before, failing);
  EXPECT(FL_ASYNC_FAILURE, plugin->event->query, before);
  fill_word(healthy, base, 4);
  EXPECT(FL_OK, plugin->stream->sync, healthy, UINT64_MAX);
  EXPECT(FL_ASYNC_FAILURE, plugin->device->sync, devices[0], UINT64_MAX);
  EXPECT(FL_OK, plugin->stream->destroy, failing);
  EXPECT(FL_OK, plugin->stream->destroy, waiter);
  EXPECT(FL_OK, plugin->device->sync, devices[0], UINT64_MAX);
  fl_stream fresh = new_stream(devices[0]);
  EXPECT(FL_OK, plugin->event->record, after, fresh);
  EXPECT(FL_OK, plugin->event->sync, after, UINT64_MAX);
  CHECK(word(devices[0], base) == 4);

  EXPECT(FL_OK, fault->fail_next, fresh, FL_DEVICE_LOST);
  EXPECT(is_inline ? FL_DEVICE_LOST : FL_OK, plugin->memory->fill, fresh, base, 0, 1, 4, 1);
  EXPECT(FL_DEVICE_LOST, plugin->stream->sync, fresh, UINT64_MAX);
  EXPECT(FL_DEVICE_LOST, plugin->stream->query, healthy);
  EXPECT(FL_DEVICE_LOST, plugin->device->sync, devices[0], UINT64_MAX);
  EXPECT(FL_OK, plugin->device->sync, devices[1], UINT64_MAX);
  EXPECT(FL_OK, plugin->memory->free, devices[0], base, 64);
  EXPECT(FL_OK, plugin->stream->destroy, fresh);
  EXPECT(FL_OK, plugin->stream->destroy, healthy);
  EXPECT(FL_OK, plugin->event->destroy, before);
  EXPECT(FL_OK, plugin->event->destroy, after);
  EXPECT(FL_OK, plugin->device->close, devices[0]);
  devices[0] = open_device(0);
  EXPECT(FL_OK, plugin->device->sync, devices[0], UINT64_MAX);
}

typedef struct {
  int rounding;
  int blocked;
} surroundings;

static void look_around(void* arg, fl_status status) {
  surroundings* seen = arg;
  (void)status;
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, NULL, &mask);
  seen->rounding = fegetround();
  seen->blocked = sigismember(&mask, SIGINT) && sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGSEGV);
}

static void workers_have_their_own_surroundings(void) {
  surroundings seen = {-1, -1};
  fesetround(FE_UPWARD);
  fl_stream stream = new_stream(devices[0]);
  EXPECT(FL_OK, plugin->stream->host_task, stream, look_around, &seen);
  EXPECT(FL_OK, plugin->stream->sync, stream, UINT64_MAX);
  CHECK(fegetround() == FE_UPWARD);
  fesetround(FE_TONEAREST);
  CHECK(seen.rounding == FE_TONEAREST && (is_inline || seen.blocked));
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, NULL, &mask);
  CHECK(!sigismember(&mask, SIGINT));
  EXPECT(FL_OK, plugin->stream->destroy, stream);
}

/* A forked child lacks the threads on whose stacks live blocks are held, so a leak check there reports falsely. */
static int in_forked_child;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) {
  return in_forked_child;
}

/* A child, and a process with work that never ends, exit at once. */
static void processes_end_cleanly(const char* path) {
  int status = -1;
  pid_t child = fork();
  if (child == 0) {
    in_forked_child = 1;
    exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  if (is_inline) return;
  child = fork();
  if (child == 0) {
    putenv("ASAN_OPTIONS=detect_leaks=0"); /* what is pending when a process ends is not lost */
    execl("/proc/self/exe", "stream_check", path, "hold", (char*)NULL);
    _exit(9);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static int exit_with_pending_work(void) {
  static gate held = GATE_INITIALIZER;
  fl_stream stream = new_stream(devices[0]);
  EXPECT(FL_OK, plugin->stream->host_task, stream, gate_task, &held);
  gate_await_entry(&held);
  EXPECT(FL_OK, plugin->stream->host_task, stream, gate_task, &held);
  return 0;
}

int main(int argc, char** argv) {
  CHECK(argc >= 2);
  alarm(100);
  load(argv[1]);
  devices[0] = open_device(0);
  devices[1] = open_device(1);
  if (argc == 3) return exit_with_pending_work();
  if (!is_inline) {
    a_stalled_stream_takes_work_and_stops_no_other();
    a_wait_is_bound_to_the_record_it_saw(devices[0]);
    a_wait_is_bound_to_the_record_it_saw(devices[1]);
    destroyed_streams_finish_their_work();
  }
  records_are_timed_when_they_execute();
  failures_stick_and_follow_waits();
  workers_have_their_own_surroundings();
  processes_end_cleanly(argv[1]);
  return 0;
}
