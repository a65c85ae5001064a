// What becomes of a vendor's answers that the reference vendor never gives: texts, classes, and nothing lost.
#include "fake_vendor.h"

using namespace harness;

namespace {

void check_texts(Device& d) {
  CHECK_EQUAL(status_name(FL_OK), "FL_OK");
  CHECK_EQUAL(status_name(FL_ASYNC_FAILURE), "FL_ASYNC_FAILURE");
  CHECK_EQUAL(status_name(77), "FL_INTERNAL (code 77)");
  CHECK_EQUAL(status_name(-1), "FL_INTERNAL (code -1)");

  VendorError error;
  CHECK_EQUAL(error.text(), "");
  check(FL_OK, error, d, [] { return std::string("never made"); });
  CHECK_EQUAL(raised(ErrorClass::kRuntime, [&] { check(FL_INTERNAL, error, d, "this"); }),
              "fl:0 (fake): this: FL_INTERNAL");
  fake::say(FL_OUT_OF_MEMORY, error.out());
  CHECK_EQUAL(raised(ErrorClass::kOutOfMemory, [&] { check(FL_OUT_OF_MEMORY, error, d, "mem_alloc of 4096 bytes"); }),
              "fl:0 (fake): mem_alloc of 4096 bytes: FL_OUT_OF_MEMORY: the fake says 6");
  raised(ErrorClass::kNotImplemented, [&] { check(FL_UNIMPLEMENTED, error, d, "that"); });
  for (fl_status status : {FL_INVALID_ARGUMENT, FL_FAILED_PRECONDITION, FL_OUT_OF_RESOURCES, FL_INTERNAL, FL_TIMEOUT,
                           FL_NOT_READY, FL_ASYNC_FAILURE, FL_DEVICE_LOST, 77}) {
    std::string text = raised(ErrorClass::kRuntime, [&] { check(status, error, d, [] { return "made late"; }); });
    CHECK_CONTAINS(text, "fl:0 (fake): made late: " + status_name(status) + ": the fake says 6");
  }

  // A vendor that fills the buffer without an end.
  VendorError full;
  std::memset(full.out()->message, 'x', full.out()->capacity);
  full.out()->length = 1 << 20;
  CHECK_EQUAL(full.text(), std::string(full.out()->capacity, 'x'));
}

void check_tables(const Vendor& vendor) {
  CHECK_EQUAL(vendor.name, "fake");
  CHECK(vendor.device.sync == fake::device_sync);
  CHECK(vendor.event.sync == fake::event_sync);
  CHECK(vendor.event.elapsed == nullptr);  // beyond the vendor's struct_size
  CHECK(vendor.fault == nullptr && vendor.pinned == nullptr);
}

void check_failed_opening(Vendor& vendor) {
  struct Case {
    fl_status fake::Answers::* answer;
    const char* text;
  };
  for (Case one : {Case{&fake::Answers::open, "device_open of the vendor's device 5 with options 'a=b': FL_INTERNAL"},
                   Case{&fake::Answers::info, "device_info: FL_INTERNAL"},
                   Case{&fake::Answers::kernels, "kernels: FL_INTERNAL"}}) {
    fake::calls.clear();
    fake::answers.*one.answer = FL_INTERNAL;
    std::string text = raised(ErrorClass::kRuntime, [&] { add_device(vendor, 5, "a=b"); });
    fake::answers.*one.answer = FL_OK;
    CHECK_CONTAINS(text, std::string("fl:1 (fake): ") + one.text + ": the fake says 5");
    if (one.answer != &fake::Answers::open) CHECK_EQUAL(fake::calls.back(), "close");
    CHECK(device_list[1] == nullptr);
  }
}

// Two devices that call different memory by one number: torch gets different addresses, the vendors their own bases.
void check_colliding_addresses(Device& a, Device& b) {
  constexpr uint64_t kBase = 0x5000;  // no multiple of 64 KiB
  fake::answers.next_base = kBase;
  Block* first = a.pool().allocate(20 << 20, a.streams().standard());
  fake::answers.next_base = kBase + (5 << 20);  // in the midst of it
  Block* second = b.pool().allocate(20 << 20, b.streams().standard());
  CHECK_EQUAL(first->address, kBase);
  CHECK_EQUAL(second->base, kBase + (5 << 20));
  CHECK(second->address >= first->address + first->bytes || second->address + second->bytes <= first->address);
  CHECK_EQUAL(second->address % 65536, kBase % 65536);
  CHECK(block_at(first->address + (6 << 20)) == first && block_at(second->address + (6 << 20)) == second);
  a.pool().release(first);
  a.pool().empty_cache();
  fake::answers.next_base = kBase;
  first = a.pool().allocate(20 << 20, a.streams().standard());
  CHECK_EQUAL(first->address, kBase);  // a token does not take the numbers it stands for
  a.pool().release(first);
  b.pool().release(second);
  a.pool().empty_cache();
  b.pool().empty_cache();
  fake::answers.next_base = 1ull << 40;
}

// OUT_OF_MEMORY: one flush, one retry, of what is needed and no more. Other failures: no retry.
void check_allocation_failures(Device& d) {
  Stream& stream = d.streams().standard();
  d.pool().release(d.pool().allocate(12 << 20, stream));
  PoolStats before = d.pool().stats();
  fake::calls.clear();
  fake::answers.alloc = FL_OUT_OF_MEMORY;
  std::string text = raised(ErrorClass::kOutOfMemory, [&] { d.pool().allocate(5000, stream); });
  CHECK_CONTAINS(text, "The vendor says: the fake says 6.");
  std::vector<std::string> wanted = {"alloc 2097152", "sync", "free 12582912", "alloc 5120"};
  CHECK(fake::calls == wanted);
  CHECK_EQUAL(d.pool().stats().retries, before.retries + 1);
  CHECK_EQUAL(d.pool().stats().out_of_memory, before.out_of_memory + 1);

  fake::calls.clear();
  fake::answers.alloc = FL_OUT_OF_RESOURCES;
  text = raised(ErrorClass::kRuntime, [&] { d.pool().allocate(5000, stream); });
  CHECK_EQUAL(text, "fl:0 (fake): mem_alloc of 5120 bytes: FL_OUT_OF_RESOURCES: the fake says 4");
  CHECK_EQUAL(fake::calls.size(), 1u);
  fake::answers.alloc = FL_OK;
  d.pool().set_memory_fraction(1e-6);
  fake::calls.clear();
  text = raised(ErrorClass::kOutOfMemory, [&] { d.pool().allocate(5000, stream); });
  CHECK(fake::calls.empty());  // forbidden before anybody is asked
  d.pool().set_memory_fraction(1.0);
  Block* block = d.pool().allocate(5000, stream);
  d.pool().release(block);
  d.pool().empty_cache();
  CHECK_EQUAL(d.pool().stats().reserved_bytes, 0u);
}

void check_stream_failures(Device& d) {
  fake::answers.stream_create = FL_OUT_OF_RESOURCES;
  std::string text = raised(ErrorClass::kRuntime, [&] { d.streams().create(0); });
  CHECK_CONTAINS(text, "stream_create with priority 0: FL_OUT_OF_RESOURCES: the fake says 4");
  fake::answers.stream_create = FL_OK;
  Stream& stream = d.streams().create(0);

  // No successor to be had: the failure stays, and is raised until there is one.
  stream.handle()->failure = FL_ASYNC_FAILURE;
  fl_stream failed = stream.handle();
  fake::answers.stream_create = FL_OUT_OF_RESOURCES;
  raised(ErrorClass::kRuntime, [&] { stream.synchronize(); });
  CHECK(stream.handle() == failed);
  fake::answers.stream_create = FL_OK;
  raised(ErrorClass::kRuntime, [&] { stream.synchronize(); });
  CHECK(stream.handle() != failed);
  stream.synchronize();

  // Unknown codes are failures, and no reason to renew.
  stream.handle()->failure = 77;
  fl_stream odd = stream.handle();
  CHECK_CONTAINS(raised(ErrorClass::kRuntime, [&] { stream.synchronize(); }),
                 "FL_INTERNAL (code 77): the fake says 77");
  raised(ErrorClass::kRuntime, [&] { d.pool().release(d.pool().allocate(64, stream)), d.pool().empty_cache(); });
  CHECK(stream.handle() == odd);
  CHECK(d.pool().stats().reserved_bytes > 0);  // whoever may still use it
  stream.handle()->failure = FL_OK;
  d.pool().empty_cache();
  CHECK_EQUAL(d.pool().stats().reserved_bytes, 0u);

  fake::answers.device_sync = FL_INTERNAL;
  CHECK_CONTAINS(raised(ErrorClass::kRuntime, [&] { d.synchronize(); }), "fl:0 (fake): synchronize: FL_INTERNAL");
  fake::answers.device_sync = FL_ASYNC_FAILURE;  // of a handle that nobody uses any more
  d.synchronize();
  fake::answers.device_sync = FL_OK;
}

// Events come back for others of their kind.
void check_events_are_recycled(Device& d) {
  Stream& stream = d.streams().standard();
  for (int i = 0; i < 3; i++) {
    for (bool timing : {true, false}) {
      Event first(d, timing), second(d, timing);
      first.record(stream);
      first.record(stream);
      second.record(stream);
    }
  }
  CHECK_EQUAL(fake::events.size(), size_t(4));
}

void check_events_run_out(Device& d) {
  Stream& owner = d.streams().create(0);
  Stream& reader = d.streams().create(0);
  fake::answers.event_create = FL_OUT_OF_RESOURCES;
  Event event(d, false);
  CHECK_CONTAINS(raised(ErrorClass::kRuntime, [&] { event.record(reader); }), "event_create: FL_OUT_OF_RESOURCES");
  CHECK(event.query());  // never recorded

  // A release that gets no event waits for the stream.
  Block* block = d.pool().allocate(64, owner);
  d.pool().record_stream(block, reader);
  fake::calls.clear();
  d.pool().release(block);
  CHECK_EQUAL(fake::calls.at(0), "sync");
  d.pool().empty_cache();
  CHECK_EQUAL(d.pool().stats().waiting_blocks, 0u);

  // So does a wait that gets no event: by syncs, slice by slice.
  static int slices = 0;
  reader.handle()->pending = true;
  static Stream* opened = &reader;
  check_signals = [] {
    if (++slices == 3) opened->handle()->pending = false;
  };
  reader.synchronize();
  check_signals = nullptr;
  CHECK_EQUAL(slices, 3);
  fake::answers.event_create = FL_OK;

  // An event that cannot be asked is not taken for complete.
  block = d.pool().allocate(64, owner);
  d.pool().record_stream(block, reader);
  d.pool().release(block);
  fake::answers.event_query = FL_INTERNAL;
  Block* other = d.pool().allocate(1 << 20, owner);  // wants more memory, and looks for it
  Block* third = d.pool().allocate(1 << 20, owner);
  CHECK_EQUAL(d.pool().stats().waiting_blocks, 1u);
  fake::answers.event_query = FL_OK;
  d.pool().release(other);
  d.pool().release(third);
  d.pool().empty_cache();
  CHECK_EQUAL(d.pool().stats().reserved_bytes, 0u);

  // A record refused for another reason leaves a fresh event as if it were new, whoever had it before.
  reader.handle()->pending = true;
  {
    Event before(d, false);
    before.record(reader);
  }
  Event after(d, false);
  fake::answers.record = FL_INTERNAL;
  raised(ErrorClass::kRuntime, [&] { after.record(owner); });
  fake::answers.record = FL_OK;
  CHECK(after.query());
  reader.handle()->pending = false;
}

}  // namespace

int main(int argc, char**) {
  CHECK(argc == 3);
  alarm(300);
  Vendor& vendor = add_vendor(fake::plugin(), nullptr, nullptr);
  fake::answers.next_base = 1ull << 40;
  Device& d = add_device(vendor, 0, "");
  check_texts(d);
  check_tables(vendor);
  check_failed_opening(vendor);
  Device& second = add_device(vendor, 1, "");
  check_colliding_addresses(d, second);
  check_allocation_failures(d);
  check_stream_failures(d);
  check_events_are_recycled(second);
  check_events_run_out(d);
  return 0;
}
