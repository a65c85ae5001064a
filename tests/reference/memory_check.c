/* memory_check.c - the allocator, copies, fills and host-inaccessible addresses of the reference vendor. */
#include <signal.h>
#include <sys/wait.h>

#include "harness.h"

static fl_device devices[2];
static fl_stream streams[2];
static uint64_t random_state = 88172645463325252ull;

static uint64_t next_random(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

static uint64_t free_bytes(void) {
  uint64_t left = 0;
  uint64_t total = 0;
  EXPECT(FL_OK, plugin->memory->info, devices[0], &left, &total);
  CHECK(left <= total);
  return left;
}

static fl_status try_alloc(uint64_t bytes, uint64_t alignment, uint64_t* out) {
  fl_mem_alloc_args args = {sizeof args, FL_KIND_MEM_ALLOC_ARGS, NULL, bytes, alignment, FL_ALLOC_DEVICE, 0};
  return plugin->memory->alloc(devices[0], &args, out, NULL);
}

static void give(uint64_t base, uint64_t bytes) { EXPECT(FL_OK, plugin->memory->free, devices[0], base, bytes); }

static void alignment_is_what_was_asked_for_and_no_more(uint64_t smallest) {
  for (uint64_t alignment = 1; alignment <= 65536; alignment *= 2) {
    uint64_t step = alignment > smallest ? alignment : smallest;
    uint64_t bases[32];
    for (int i = 0; i < 32; i++) {
      CHECK(try_alloc((uint64_t)i * 97 + 1, alignment, &bases[i]) == FL_OK);
      CHECK(bases[i] % step == 0 && bases[i] % (2 * step) == step);
    }
    for (int i = 31; i >= 0; i--) give(bases[i], (uint64_t)i * 97 + 1);
  }
  uint64_t base = 7;
  CHECK(try_alloc(64, 131072, &base) == FL_INVALID_ARGUMENT);
  CHECK(try_alloc(64, 96, &base) == FL_INVALID_ARGUMENT);
  CHECK(try_alloc(0, 0, &base) == FL_INVALID_ARGUMENT);
  CHECK(base == 7);
}

/* Random allocations and frees; every live block holds its own number at both ends. */
static void live_blocks_never_overlap(void) {
  enum { SLOTS = 200, STEPS = 6000 };
  static struct {
    uint64_t base, bytes;
  } live[SLOTS];
  uint64_t before = free_bytes();
  for (int step = 0; step < STEPS; step++) {
    size_t slot = next_random() % SLOTS;
    if (live[slot].base != 0) {
      give(live[slot].base, live[slot].bytes);
      live[slot].base = 0;
      continue;
    }
    uint64_t bytes = next_random() % 5 == 0 ? next_random() % 100000 + 1 : next_random() % 700 + 1;
    uint64_t base = 0;
    CHECK(try_alloc(bytes, 1ull << next_random() % 13, &base) == FL_OK);
    for (int other = 0; other < SLOTS; other++) {
      if (live[other].base == 0) continue;
      CHECK(base + bytes <= live[other].base || live[other].base + live[other].bytes <= base);
    }
    live[slot].base = base;
    live[slot].bytes = bytes;
  }
  for (int slot = 0; slot < SLOTS; slot++) {
    if (live[slot].base != 0) give(live[slot].base, live[slot].bytes);
    live[slot].base = 0;
  }
  CHECK(free_bytes() == before);
}

static void memory_runs_out_and_comes_back(void) {
  uint64_t total = free_bytes();
  uint64_t whole = 0;
  uint64_t refused = 5;
  CHECK(try_alloc(total, 0, &whole) == FL_OK);
  CHECK(free_bytes() == 0);
  CHECK(try_alloc(1, 0, &refused) == FL_OUT_OF_MEMORY && refused == 5);
  give(whole, total);
  CHECK(try_alloc(total + 1, 0, &refused) == FL_OUT_OF_MEMORY && refused == 5);
  CHECK(try_alloc(UINT64_MAX, 65536, &refused) == FL_OUT_OF_MEMORY && refused == 5);

  /* Every second quarter-MiB taken: half is free, no piece is larger than a quarter. */
  enum { PIECES = 512 };
  static uint64_t bases[PIECES];
  uint64_t piece = total / PIECES;
  for (int i = 0; i < PIECES; i++) CHECK(try_alloc(piece, 0, &bases[i]) == FL_OK);
  for (int i = 0; i < PIECES; i += 2) give(bases[i], piece);
  CHECK(free_bytes() == total / 2);
  CHECK(try_alloc(piece * 2, 0, &refused) == FL_OUT_OF_MEMORY);
  CHECK(try_alloc(piece, 0, &bases[0]) == FL_OK);
  give(bases[0], piece);
  for (int i = 1; i < PIECES; i += 2) give(bases[i], piece);
  CHECK(free_bytes() == total);
  CHECK(try_alloc(total, 0, &whole) == FL_OK);
  give(whole, total);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->free, devices[0], whole, total);
  uint64_t base = new_block(devices[0], 100);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->free, devices[0], base, 99);
  give(base, 100);
}

static void copies_move_exactly_their_bytes(void) {
  enum { BYTES = 5000 };
  unsigned char source[BYTES], back[BYTES], wanted[BYTES];
  for (int i = 0; i < BYTES; i++) source[i] = (unsigned char)(i * 31 + 7);
  uint64_t here = new_block(devices[0], BYTES);
  uint64_t there = new_block(devices[1], BYTES);
  for (uint64_t bytes = 1; bytes < 1000; bytes += bytes < 70 ? 1 : 113) {
    uint64_t at = next_random() % 1000;
    uint64_t from = next_random() % 1000;
    EXPECT(FL_OK, plugin->memory->fill, streams[0], here, 0, 0xEE, 1, BYTES);
    fl_copy_args args = to_device(devices[0], here, at, source + from, bytes);
    EXPECT(FL_OK, plugin->memory->copy, streams[0], &args);
    EXPECT(FL_OK, plugin->stream->sync, streams[0], UINT64_MAX);
    EXPECT(FL_OK, plugin->memory->fill, streams[1], there, 0, 0xDD, 1, BYTES);
    args = between(devices[1], there, from, devices[0], here, at, bytes);
    EXPECT(FL_OK, plugin->memory->copy, streams[1], &args);
    args = between(devices[1], there, 3000 + at, devices[1], there, from, bytes);
    EXPECT(FL_OK, plugin->memory->copy, streams[1], &args);
    download(streams[1], devices[1], there, back, BYTES);
    memset(wanted, 0xDD, BYTES);
    memcpy(wanted + from, source + from, bytes);
    memcpy(wanted + 3000 + at, source + from, bytes);
    CHECK(memcmp(back, wanted, BYTES) == 0);
  }
  for (uint32_t width = 1; width <= 8; width *= 2) {
    uint64_t pattern = 0x1122334455667788ull;
    EXPECT(FL_OK, plugin->memory->fill, streams[0], here, 0, 0, 1, BYTES);
    EXPECT(FL_OK, plugin->memory->fill, streams[0], here, 3 * width, pattern, width, 5);
    download(streams[0], devices[0], here, back, BYTES);
    memset(wanted, 0, BYTES);
    for (int i = 0; i < 5; i++) memcpy(wanted + 3 * width + (size_t)i * width, &pattern, width);
    CHECK(memcmp(back, wanted, BYTES) == 0);
  }
  give(here, BYTES);
  EXPECT(FL_OK, plugin->memory->free, devices[1], there, BYTES);
}

static void bad_locations_are_refused(void) {
  char host[64] = {0};
  uint64_t base = new_block(devices[0], 64);
  fl_copy_args args = to_device(devices[0], base, 60, host, 5);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->copy, streams[0], &args);
  args = to_device(devices[0], base, UINT64_MAX, host, 2);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->copy, streams[0], &args);
  args = to_device(devices[0], base + 8, 0, host, 8);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->copy, streams[0], &args);
  args = to_device(devices[1], base, 0, host, 8);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->copy, streams[1], &args);
  args = to_device(devices[0], base, 0, host, 8);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->copy, streams[1], &args);
  args = to_device(devices[0], base, 0, NULL, 8);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->copy, streams[0], &args);
  args = to_device(devices[0], base, 0, host, 0);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->copy, streams[0], &args);
  args = to_device(devices[0], base, 0, host, 8);
  args.dst_space = FL_SPACE_HOST;
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->copy, streams[0], &args);
  args.dst_space = 2;
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->copy, streams[0], &args);
  args = between(devices[0], base, 8, devices[0], base, 0, 9);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->copy, streams[0], &args);
  args.bytes = 8;
  EXPECT(FL_OK, plugin->memory->copy, streams[0], &args);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->fill, streams[0], base, 2, 0, 4, 1);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->fill, streams[0], base, 0, 0, 3, 1);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->fill, streams[0], base, 0, 0, 8, 9);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->fill, streams[0], base, 0, 0, 8, 1ull << 61);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->fill, streams[0], base, 0, 0, 8, 0);
  EXPECT(FL_OK, plugin->stream->sync, streams[0], UINT64_MAX);
  give(base, 64);
}

static uint64_t expected_fault;

static void on_fault(int number, siginfo_t* info, void* context) {
  (void)number;
  (void)context;
  _exit((uint64_t)(uintptr_t)info->si_addr == expected_fault ? 42 : 43);
}

static void host_access_faults_at_the_address(void) {
  uint64_t base = new_block(devices[0], 64);
  expected_fault = base + 8;
  pid_t child = fork();
  if (child == 0) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    *(volatile char*)(uintptr_t)expected_fault = 1;
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
  give(base, 64);
}

static void pinned_ranges_are_known(void) {
  const fl_extension* found = NULL;
  EXPECT(FL_OK, plugin->get_extension, "fl.pinned", 1, &found);
  const fl_pinned_api* pinned = (const fl_pinned_api*)found;
  void* memory = NULL;
  int32_t is = -1;
  EXPECT(FL_OK, pinned->alloc, devices[0], 100, &memory);
  CHECK((uintptr_t)memory % 64 == 0);
  EXPECT(FL_OK, pinned->is_pinned, (char*)memory + 99, &is);
  CHECK(is == 1);
  EXPECT(FL_OK, pinned->is_pinned, (char*)memory + 100, &is);
  CHECK(is == 0);
  EXPECT(FL_INVALID_ARGUMENT, pinned->register_range, devices[0], (char*)memory + 50, 100);
  EXPECT(FL_INVALID_ARGUMENT, pinned->unregister_range, devices[0], memory);
  EXPECT(FL_OK, pinned->free, devices[0], memory);
  EXPECT(FL_INVALID_ARGUMENT, pinned->free, devices[0], memory);
  char own[256] = {0};
  EXPECT(FL_OK, pinned->register_range, devices[0], own, 256);
  EXPECT(FL_OK, pinned->is_pinned, own + 200, &is);
  CHECK(is == 1);
  EXPECT(FL_OK, pinned->unregister_range, devices[0], own);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  load(argv[1]);
  for (int i = 0; i < 2; i++) {
    devices[i] = open_device(i);
    streams[i] = new_stream(devices[i]);
  }
  fl_device_info info;
  info.struct_size = sizeof info;
  info.kind = FL_KIND_DEVICE_INFO;
  EXPECT(FL_OK, plugin->device->info, devices[0], &info);
  alignment_is_what_was_asked_for_and_no_more(info.alloc_align);
  live_blocks_never_overlap();
  memory_runs_out_and_comes_back();
  copies_move_exactly_their_bytes();
  bad_locations_are_refused();
  if (info.address_model == FL_ADDRESS_LINEAR) host_access_faults_at_the_address();
  pinned_ranges_are_known();
  for (int i = 0; i < 2; i++) {
    EXPECT(FL_OK, plugin->stream->destroy, streams[i]);
    EXPECT(FL_OK, plugin->device->close, devices[i]);
  }
  devices[0] = open_device(0);
  EXPECT(FL_OK, plugin->device->close, devices[0]);
  return 0;
}
