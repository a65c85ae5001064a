// The list of devices: discovery, places, and what a forked child may do.
#include <atomic>
#include <chrono>

#include "core/fork.h"
#include "harness.h"

using namespace harness;

namespace {

char** paths;
std::atomic<int> discoveries{0};
bool fail_discovery = true;

struct NotFound {};

// Fails after its first device, then succeeds; calls back as the bridge's own hook does.
void discover() {
  discoveries += 1;
  CHECK_EQUAL(device_count(), 0);
  Vendor& vendor = add_vendor_at(paths[0]);
  add_device(vendor, 0, "");
  CHECK_EQUAL(device_count(), 1);
  CHECK(&device(0) == device_list[0]);
  if (fail_discovery) throw NotFound();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for others to find it half done
  CHECK_EQUAL(add_unusable("fl:1 (reference): the certificate is missing"), 1);
  add_device(vendor, 1, "memory=64M");
}

void check_child_before_discovery() {
  in_child([] {
    fail_discovery = false;
    set_discovery(discover);
    CHECK_EQUAL(device_count(), 3);
    Stream& stream = device(2).streams().standard();
    Block* block = device(2).pool().allocate(100, stream);
    std::vector<uint8_t> read(100);
    fill(stream, *block, 5);
    read_later(stream, *block, read.data());
    stream.synchronize();
    CHECK(all_equal(read, 5));
  });
}

void check_failed_discovery() {
  set_discovery(discover);
  for (int i = 1; i <= 2; i++) {
    bool failed = false;
    try {
      device_count();
    } catch (const NotFound&) {
      failed = true;
    }
    CHECK(failed);
    CHECK_EQUAL(discoveries.load(), i);
    CHECK(device_list[0] == nullptr);  // and closed, or it could not be opened again
  }
}

void check_discovery_runs_once() {
  static std::atomic<int> waits{0};
  blocking = [](void (*wait)(void*), void* argument) {
    waits += 1;
    wait(argument);
  };
  fail_discovery = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; t++) threads.emplace_back([] { CHECK_EQUAL(device_count(), 3); });
  for (std::thread& thread : threads) thread.join();
  CHECK_EQUAL(discoveries.load(), 3);
  CHECK(waits >= 1);
  waits = 0;
  CHECK_EQUAL(device_count(), 3);
  CHECK_EQUAL(waits.load(), 0);
  blocking = nullptr;
}

void check_list() {
  CHECK_EQUAL(device(0).index, 0);
  CHECK_EQUAL(device(2).index, 2);
  CHECK_EQUAL(device(2).vendor_index, 1);
  CHECK_EQUAL(device(2).info.total_bytes, 64ull << 20);
  CHECK(&device(0).vendor == &device(2).vendor && device(0).vendor.name == "reference");
  CHECK(device_list[1] == nullptr && device_list[3] == nullptr && device_list[2] == &device(2));
  CHECK_EQUAL(raised(ErrorClass::kRuntime, [] { device(1); }), "fl:1 (reference): the certificate is missing");
  CHECK_EQUAL(raised(ErrorClass::kRuntime, [] { device(3); }),
              "fl:3 does not exist: this process has 3 devices, fl:0 to fl:2");
  raised(ErrorClass::kRuntime, [] { device(-1); });
  set_current_device(1);  // a place, though of no use
  CHECK_EQUAL(exchange_device(0), 1);
}

void check_refused_devices() {
  Vendor& vendor = add_vendor_at(paths[0]);
  CHECK(&vendor == &device(0).vendor);
  std::string text = raised(ErrorClass::kRuntime, [&] { add_device(vendor, 1, ""); });
  CHECK_CONTAINS(text, "fl:3 (reference): device_open of the vendor's device 1 with options ''");
  CHECK_CONTAINS(text, "FL_FAILED_PRECONDITION: device 1 is open already");
  Vendor& other = add_vendor_at(paths[1]);
  CHECK_CONTAINS(raised(ErrorClass::kRuntime, [&] { add_device(other, 0, "colour=red"); }), "unknown option 'colour'");
  for (int i = 0; i < 2; i++) {  // closed again each time
    bool thrown = false;
    try {
      add_device(other, 0, "", [](fl_device) { throw NotFound(); });
    } catch (const NotFound&) {
      thrown = true;
    }
    CHECK(thrown);
  }
  CHECK_EQUAL(device_count(), 3);
  fl_device seen = nullptr;
  Device& added = add_device(other, 0, nullptr, [&](fl_device handle) { seen = handle; });
  CHECK(added.handle == seen && added.index == 3 && added.is_inline && device_list[3] == &added);
  for (int i = 4; i < kMaxDevices; i++) add_unusable("full");
  CHECK_CONTAINS(raised(ErrorClass::kRuntime, [] { add_unusable("one more"); }), "more than 64 devices");
}

const char forked_text[] = "devices cannot be used in a forked child; use the 'spawn' start method";

void check_forked_child() {
  Device& d = device(0);
  Stream& stream = d.streams().standard();
  Stream& other = d.streams().create(0);
  Block* cached = d.pool().allocate(100, stream);
  Block* used = d.pool().allocate(200, stream);
  Block* kept = d.pool().allocate(300, stream);
  d.pool().record_stream(used, other);
  Event event(d, false);
  event.record(stream);
  in_child([&] {
    CHECK(forked());
    auto refused = [](auto&& f) { CHECK_CONTAINS(raised(ErrorClass::kRuntime, f), forked_text); };
    refused([] { device_count(); });
    refused([] { device(0); });
    refused([] { ensure_discovered(); });
    refused([&] { stream.synchronize(); });
    refused([&] { stream.query(); });
    refused([&] { d.synchronize(); });
    refused([&] { event.synchronize(); });
    refused([&] { event.record(stream); });
    refused([&] { d.streams().create(0); });
    refused([&] { d.streams().from_pool(0); });
    refused([&] { d.pool().empty_cache(); });
    refused([&] { d.pool().allocate(32 << 20, stream); });
    refused([&] { d.pool().record_stream(kept, other); });
    refused([] { block_at(1); });
    uint64_t bytes = 0;
    refused([&] { d.pool().info(&bytes, &bytes); });
    CHECK_EQUAL(try_fill(stream, *kept, 0), FL_FAILED_PRECONDITION);
    // What Python's garbage collector does at the child's end.
    d.pool().release(cached);
    d.pool().release(used);
    Event(d, false);
    in_child([&] { refused([] { device_count(); }); });
  });
  CHECK(!forked());
  d.pool().release(cached);
  d.pool().release(used);
  d.pool().release(kept);
  stream.synchronize();
  event.synchronize();
  CHECK_EQUAL(device_count(), kMaxDevices);
}

// A child whose parent's other threads were inside the pool when it was forked does not hang on their locks.
void check_fork_amid_allocations() {
  Device& d = device(0);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; t++) {
    threads.emplace_back([&] {
      Stream& stream = d.streams().standard();
      Stream& other = d.streams().from_pool(0);
      while (!stop) {
        Block* block = d.pool().allocate(128, stream);
        Block* used = d.pool().allocate(128, stream);
        d.pool().record_stream(used, other);
        d.pool().release(used);
        d.pool().release(block);
      }
    });
  }
  Event* event = new Event(d, false);
  event->record(d.streams().standard());
  Block* mine = d.pool().allocate(128, d.streams().standard());
  Block* used = d.pool().allocate(128, d.streams().standard());
  d.pool().record_stream(used, d.streams().create(0));
  for (int i = 0; i < 100; i++) {
    in_child([&] {
      d.pool().release(mine);
      d.pool().release(used);
      delete event;
      raised(ErrorClass::kRuntime, [&] { d.pool().empty_cache(); });
      raised(ErrorClass::kRuntime, [] { device_count(); });
    });
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  d.pool().release(mine);
  d.pool().release(used);
  delete event;
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 3);
  alarm(300);
  paths = argv + 1;
  check_child_before_discovery();
  check_failed_discovery();
  check_discovery_runs_once();
  check_list();
  check_refused_devices();
  check_forked_child();
  check_fork_amid_allocations();
  return 0;
}
