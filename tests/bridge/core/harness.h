// What the C++ tests of the bridge's core share: checks that name their line, the reference vendor's two libraries in
// one process, and short forms of vendor calls. A program takes their paths and exits 0 when every check held.
#pragma once
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "core/pool.h"
#include "core/stream.h"

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                                          \
    }                                                                                    \
  } while (0)

#define CHECK_EQUAL(got, wanted)                                                                                    \
  do {                                                                                                              \
    auto check_got = (got);                                                                                         \
    decltype(check_got) check_wanted = (wanted);                                                                    \
    if (check_got != check_wanted) {                                                                                \
      std::fprintf(stderr, "%s:%d: %s is %s, not %s\n", __FILE__, __LINE__, #got, harness::show(check_got).c_str(), \
                   harness::show(check_wanted).c_str());                                                            \
      _exit(1);                                                                                                     \
    }                                                                                                               \
  } while (0)

#define CHECK_CONTAINS(text, part)                                                                     \
  do {                                                                                                 \
    std::string check_text = (text);                                                                   \
    if (check_text.find(part) == std::string::npos) {                                                  \
      std::fprintf(stderr, "%s:%d: no \"%s\" in: %s\n", __FILE__, __LINE__, std::string(part).c_str(), \
                   check_text.c_str());                                                                \
      _exit(1);                                                                                        \
    }                                                                                                  \
  } while (0)

namespace harness {

using namespace torch_fl;

inline std::string show(const std::string& value) { return value; }
template <class Value>
std::string show(Value value) {
  if constexpr (std::is_pointer_v<Value>) {
    return std::to_string(reinterpret_cast<uintptr_t>(value));
  } else {
    return std::to_string(value);
  }
}

struct Raised : std::runtime_error {
  Raised(ErrorClass c, const std::string& message) : std::runtime_error(message), error_class(c) {}
  ErrorClass error_class;
};

// The message that f() raises; the program ends where it raises none or one of another class.
template <class F>
std::string raised(ErrorClass wanted, F&& f) {
  try {
    f();
  } catch (const Raised& error) {
    if (error.error_class == wanted) return error.what();
    std::fprintf(stderr, "raised with class %d, not %d: %s\n", static_cast<int>(error.error_class),
                 static_cast<int>(wanted), error.what());
    _exit(1);
  }
  std::fprintf(stderr, "nothing was raised\n");
  _exit(1);
}

// ---- the reference vendor -----------------------------------------------------------------------------------------

inline const fl_plugin* load(const char* path) {
  void* library = dlopen(path, RTLD_LOCAL | RTLD_NOW);
  if (library == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  CHECK(library != nullptr);
  auto query = reinterpret_cast<fl_plugin_query_fn>(dlsym(library, "fl_plugin_query_v1"));
  fl_host host = {sizeof host, FL_KIND_HOST, 0, 0, "tests", nullptr, nullptr};
  const fl_plugin* root = nullptr;
  CHECK(query != nullptr && query(&host, &root, nullptr) == FL_OK);
  return root;
}

inline Vendor& add_vendor_at(const char* path) {
  const fl_plugin* root = load(path);
  const fl_extension* pinned = nullptr;
  const fl_extension* fault = nullptr;
  CHECK(root->get_extension("fl.pinned", 1, &pinned, nullptr) == FL_OK);
  CHECK(root->get_extension("fl.fault", 1, &fault, nullptr) == FL_OK);
  return add_vendor(root, reinterpret_cast<const fl_pinned_api*>(pinned), reinterpret_cast<const fl_fault_api*>(fault));
}

// fl:0 and fl:1 are ASYNC and LINEAR, fl:2 is INLINE with addresses that are HANDLEs.
inline void add_reference_devices(char** paths, const char* options = "memory=128M") {
  Vendor& async = add_vendor_at(paths[0]);
  add_device(async, 0, options);
  add_device(async, 1, options);
  add_device(add_vendor_at(paths[1]), 0, options);
}

// ---- short forms --------------------------------------------------------------------------------------------------

inline void must(fl_status status, const VendorError& error, const char* what) {
  if (status == FL_OK) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, status_name(status).c_str(), error.text().c_str());
  _exit(1);
}

inline fl_status try_fill(Stream& stream, const Block& block, uint8_t value) {
  uint64_t pattern = value * 0x0101010101010101ull;
  return stream.device.vendor.memory.fill(stream.handle(), block.base, block.offset, pattern, 1, block.requested,
                                          nullptr);
}

inline void fill(Stream& stream, const Block& block, uint8_t value) {
  VendorError error;
  uint64_t pattern = value * 0x0101010101010101ull;
  must(stream.device.vendor.memory.fill(stream.handle(), block.base, block.offset, pattern, 1, block.requested,
                                        error.out()),
       error, "fill");
}

inline fl_copy_args copy_from(const Block& block) {
  fl_copy_args args{};
  args.struct_size = sizeof args;
  args.kind = FL_KIND_COPY_ARGS;
  args.src_space = FL_SPACE_DEVICE;
  args.src_device = block.stream->device.handle;
  args.src_base = block.base;
  args.src_offset = block.offset;
  args.bytes = block.requested;
  return args;
}

// Submits a copy of the block to the host; `out` is written by the time the stream is done.
inline void read_later(Stream& stream, const Block& block, uint8_t* out) {
  fl_copy_args args = copy_from(block);
  args.dst_space = FL_SPACE_HOST;
  args.dst_base = reinterpret_cast<uint64_t>(out);
  VendorError error;
  must(stream.device.vendor.memory.copy(stream.handle(), &args, error.out()), error, "copy to the host");
}

// The same to a block of this vendor that is as large.
inline void copy_between(Stream& stream, const Block& to, const Block& from) {
  fl_copy_args args = copy_from(from);
  args.dst_space = FL_SPACE_DEVICE;
  args.dst_device = to.stream->device.handle;
  args.dst_base = to.base;
  args.dst_offset = to.offset;
  VendorError error;
  must(stream.device.vendor.memory.copy(stream.handle(), &args, error.out()), error, "copy between devices");
}

inline bool all_equal(const std::vector<uint8_t>& bytes, uint8_t value) {
  for (uint8_t byte : bytes) {
    if (byte != value) return false;
  }
  return true;
}

inline void delay_next(Stream& stream, uint64_t ns) {
  CHECK(stream.device.vendor.fault->delay_next(stream.handle(), ns, nullptr) == FL_OK);
}

inline void fail_next(Stream& stream, fl_status status = FL_ASYNC_FAILURE) {
  CHECK(stream.device.vendor.fault->fail_next(stream.handle(), status, nullptr) == FL_OK);
}

// Holds a stream from close_on() until open().
class Gate {
 public:
  ~Gate() { open(); }
  void close_on(Stream& stream) {
    VendorError error;
    must(stream.device.vendor.stream.host_task(stream.handle(), hold, this, error.out()), error, "host_task");
    std::unique_lock<std::mutex> lock(mutex_);
    closed_ += 1;
  }
  // Returns once no task uses this gate any more.
  void open() {
    std::unique_lock<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return passed_ == closed_; });
  }

 private:
  static void hold(void* self, fl_status) {
    Gate& gate = *static_cast<Gate*>(self);
    std::unique_lock<std::mutex> lock(gate.mutex_);
    gate.changed_.wait(lock, [&] { return gate.open_; });
    gate.passed_ += 1;
    gate.changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int closed_ = 0;
  int passed_ = 0;
};

// Runs f in a forked child, which must end by itself; its checks count.
template <class F>
void in_child(F&& f) {
  pid_t child = fork();
  if (child == 0) {
    alarm(60);
    f();
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQUAL(status, 0);
}

}  // namespace harness

// Each program is one translation unit.
void torch_fl::raise(ErrorClass error_class, const std::string& message) {
  throw harness::Raised(error_class, message);
}
