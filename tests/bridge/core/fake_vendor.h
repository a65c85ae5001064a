// A vendor whose every answer a test can set: memory is numbers, streams complete when told to. For what the reference
// vendor never does: bad answers, short tables, colliding addresses, resources that run out.
#pragma once
#include <deque>

#include "harness.h"

struct fl_device_s {
  int index;
};
struct fl_stream_s {
  bool pending = false;
  fl_status failure = FL_OK;
};
struct fl_event_s {
  fl_stream recorded = nullptr;
};

namespace fake {

using harness::show;

struct Answers {
  fl_status open = FL_OK, info = FL_OK, kernels = FL_OK, alloc = FL_OK, stream_create = FL_OK, event_create = FL_OK,
            record = FL_OK, device_sync = FL_OK, event_query = FL_OK;
  uint64_t next_base = 0;  // what the next alloc gives
};
inline Answers answers;
inline std::vector<std::string> calls;  // of open, close, alloc, free, sync
inline std::deque<fl_device_s> devices;
inline std::deque<fl_stream_s> streams;
inline std::deque<fl_event_s> events;

inline fl_status say(fl_status status, fl_error* err) {
  if (status != FL_OK && err != nullptr) {
    std::snprintf(err->message, err->capacity, "the fake says %d", status);
    err->length = std::strlen(err->message);
    err->code = status;
  }
  return status;
}

inline fl_status count(int32_t* out, fl_error*) {
  *out = 64;
  return FL_OK;
}
inline fl_status open(int32_t index, const fl_device_open_args*, fl_device* out, fl_error* err) {
  if (answers.open != FL_OK) return say(answers.open, err);
  calls.push_back("open");
  devices.push_back({index});
  *out = &devices.back();
  return FL_OK;
}
inline fl_status close(fl_device, fl_error*) {
  calls.push_back("close");
  return FL_OK;
}
inline fl_status info(fl_device, fl_device_info* out, fl_error* err) {
  if (answers.info != FL_OK) return say(answers.info, err);
  out->name = "fake";
  out->execution_model = FL_EXEC_ASYNC;
  out->address_model = FL_ADDRESS_LINEAR;
  out->alloc_align = 64;
  out->max_align = 64;
  out->total_bytes = 1ull << 30;
  return FL_OK;
}
inline fl_status device_sync(fl_device, uint64_t, fl_error* err) { return say(answers.device_sync, err); }
inline fl_status alloc(fl_device, const fl_mem_alloc_args* args, uint64_t* out, fl_error* err) {
  calls.push_back("alloc " + std::to_string(args->bytes));
  if (answers.alloc != FL_OK) return say(answers.alloc, err);
  *out = answers.next_base;
  answers.next_base += (args->bytes + 65535) / 65536 * 65536;
  return FL_OK;
}
inline fl_status free(fl_device, uint64_t, uint64_t bytes, fl_error*) {
  calls.push_back("free " + std::to_string(bytes));
  return FL_OK;
}
inline fl_status mem_info(fl_device, uint64_t* out_free, uint64_t* out_total, fl_error*) {
  *out_free = *out_total = 1ull << 30;
  return FL_OK;
}
inline fl_status stream_create(fl_device, const fl_stream_create_args*, fl_stream* out, fl_error* err) {
  if (answers.stream_create != FL_OK) return say(answers.stream_create, err);
  streams.emplace_back();
  *out = &streams.back();
  return FL_OK;
}
inline fl_status stream_destroy(fl_stream, fl_error*) { return FL_OK; }
inline fl_status event_destroy(fl_event, fl_error*) { return FL_OK; }
inline fl_status stream_query(fl_stream stream, fl_error* err) {
  return say(stream->failure != FL_OK ? stream->failure : stream->pending ? FL_NOT_READY : FL_OK, err);
}
inline fl_status stream_sync(fl_stream stream, uint64_t, fl_error* err) {
  calls.push_back("sync");
  return say(stream->failure != FL_OK ? stream->failure : stream->pending ? FL_TIMEOUT : FL_OK, err);
}
inline fl_status event_create(fl_device, const fl_event_create_args*, fl_event* out, fl_error* err) {
  if (answers.event_create != FL_OK) return say(answers.event_create, err);
  events.emplace_back();
  *out = &events.back();
  return FL_OK;
}
inline fl_status event_record(fl_event event, fl_stream stream, fl_error* err) {
  if (answers.record != FL_OK) return say(answers.record, err);
  event->recorded = stream;
  return FL_OK;
}
inline fl_status event_query(fl_event event, fl_error* err) {
  if (answers.event_query != FL_OK) return say(answers.event_query, err);
  return event->recorded != nullptr && event->recorded->pending ? FL_NOT_READY : FL_OK;
}
inline fl_status event_sync(fl_event event, uint64_t, fl_error*) {
  return event->recorded != nullptr && event->recorded->pending ? FL_TIMEOUT : FL_OK;
}
inline fl_status kernels(fl_device, const fl_kernel_table** out, fl_error* err) {
  static const fl_kernel_table table = {sizeof(fl_kernel_table), FL_KIND_KERNEL_TABLE, sizeof(fl_kernel), 0, nullptr};
  if (answers.kernels != FL_OK) return say(answers.kernels, err);
  *out = &table;
  return FL_OK;
}

// As the tables of a later vendor look: longer than this host knows.
struct LongDeviceApi {
  fl_device_api known;
  void* unknown[4];
};

inline const fl_plugin* plugin() {
  static LongDeviceApi device;
  static fl_memory_api memory{};
  static fl_stream_api stream{};
  static fl_event_api event{};
  static fl_kernel_api kernel{};
  static fl_plugin root{};
  device.known = {sizeof device, FL_KIND_DEVICE_API, count, open, close, info, device_sync};
  memory = {sizeof memory, FL_KIND_MEMORY_API, alloc, free, mem_info, nullptr, nullptr};
  stream = {sizeof stream, FL_KIND_STREAM_API, stream_create, stream_destroy,
            stream_query,  stream_sync,        nullptr,       nullptr};
  // Too short for what it says at its end, which must not be read.
  event = {FL_SIZE_V1_0_EVENT_API - 8,
           FL_KIND_EVENT_API,
           event_create,
           event_destroy,
           event_record,
           event_query,
           event_sync,
           reinterpret_cast<decltype(event.elapsed)>(1)};
  kernel = {sizeof kernel, FL_KIND_KERNEL_API, kernels};
  root.struct_size = sizeof root;
  root.kind = FL_KIND_PLUGIN;
  root.name = "fake";
  root.version = "1";
  root.device = &device.known;
  root.memory = &memory;
  root.stream = &stream;
  root.event = &event;
  root.kernel = &kernel;
  return &root;
}

}  // namespace fake
