#include "profile.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <tuple>

#include "fork.h"

namespace torch_fl {

std::atomic<int> running_profiles{0};

void Measured::add(const Measured& other) noexcept {
  calls += other.calls;
  host_ns += other.host_ns;
  wait_ns += other.wait_ns;
  waits += other.waits;
  added_ns += other.added_ns;
  bytes_to_device += other.bytes_to_device;
  bytes_to_host += other.bytes_to_host;
  shape_hits += other.shape_hits;
  shape_misses += other.shape_misses;
}

namespace {

// ---- Sums of each thread -------------------------------------------------------------------------------------------

using SumKey = std::tuple<int, std::string, ServedBy>;

struct ThreadSums {
  std::mutex mutex;  // its thread adds, and whoever takes a snapshot reads
  std::map<SumKey, Measured> sums;
};

// Of all threads: their own where they run, one for those that have ended.
struct AllSums {
  std::mutex mutex;  // held before that of a ThreadSums
  std::vector<ThreadSums*> of_threads;
  ThreadSums ended;
};
AllSums& all_sums() {
  static auto& leaked = *new AllSums;
  return leaked;
}

thread_local ThreadSums* thread_sums = nullptr;

// Hands a thread's sums over when it ends. What a later destructor of the thread adds makes new ones, which stay.
struct SumsOwner {
  ~SumsOwner() {
    if (thread_sums == nullptr || forked()) return;
    AllSums& all = all_sums();
    std::lock_guard<std::mutex> lock(all.mutex);
    for (const auto& [key, sums] : thread_sums->sums) all.ended.sums[key].add(sums);
    all.of_threads.erase(std::find(all.of_threads.begin(), all.of_threads.end(), thread_sums));
    delete thread_sums;
    thread_sums = nullptr;
  }
};

ThreadSums& own_sums() {
  if (thread_sums != nullptr) return *thread_sums;
  thread_local SumsOwner owner;
  (void)owner;
  auto* made = new ThreadSums;
  AllSums& all = all_sums();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.of_threads.push_back(made);
  return *(thread_sums = made);
}

void add_to_sums(const Device& device, const std::string& op, ServedBy by, const Measured& measured) {
  if (forked()) return;  // another thread may have held the lock when this process began
  ThreadSums& own = own_sums();
  std::lock_guard<std::mutex> lock(own.mutex);
  own.sums[{device.index, op, by}].add(measured);
}

// ---- The calls underway --------------------------------------------------------------------------------------------

uint64_t now_ns() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

thread_local ProfiledCall* call_underway = nullptr;
thread_local bool is_waiting = false;

}  // namespace

ProfiledCall::ProfiledCall() noexcept : outer_(call_underway), begin_ns_(now_ns()) { call_underway = this; }

ProfiledCall::~ProfiledCall() {
  call_underway = outer_;
  // Not finished: what took time within is also none of the outer call's own.
  if (outer_ != nullptr) outer_->within_ns_ += within_ns_;
}

void ProfiledCall::finish(const std::string& op) {
  const uint64_t whole_ns = now_ns() - begin_ns_;
  own_.calls = 1;
  own_.host_ns = whole_ns - std::min(whole_ns, within_ns_);
  if (outer_ != nullptr && outer_->served_by_ == ServedBy::kCpu) {
    own_.calls = own_.host_ns = 0;
    outer_->own_.add(own_);
    return;
  }
  within_ns_ = whole_ns;
  add_to_sums(*device_, op, served_by_, own_);
}

void Notes::served(Device& device, ServedBy by) {
  ProfiledCall* call = call_underway;
  if (call == nullptr) {
    Measured one;
    one.calls = 1;
    return add_to_sums(device, "", by, one);
  }
  if (call->device_ == nullptr) call->device_ = &device;
  call->served_by_ = std::max(call->served_by_, by);
}

void Notes::moved(Device& device, uint64_t to_device, uint64_t to_host) {
  served(device, ServedBy::kMemory);
  Measured bytes;
  bytes.bytes_to_device = to_device;
  bytes.bytes_to_host = to_host;
  if (call_underway != nullptr) return call_underway->own_.add(bytes);
  add_to_sums(device, "", ServedBy::kMemory, bytes);
}

void Notes::shape(bool hit) noexcept {
  if (call_underway != nullptr) ++(hit ? call_underway->own_.shape_hits : call_underway->own_.shape_misses);
}

uint64_t Notes::begin_wait() noexcept {
  if (is_waiting) return 0;
  is_waiting = true;
  return now_ns();
}

void Notes::end_wait(Device& device, uint64_t begin_ns) {
  is_waiting = false;
  Measured wait;
  wait.waits = 1;
  wait.wait_ns = now_ns() - begin_ns;
  if (call_underway != nullptr) {
    if (call_underway->device_ == nullptr) call_underway->device_ = &device;
    return call_underway->own_.add(wait);
  }
  wait.calls = 1;
  wait.host_ns = wait.wait_ns;
  add_to_sums(device, "", ServedBy::kHost, wait);
}

void Notes::end_added_wait(ProfiledCall& call, uint64_t begin_ns) noexcept {
  is_waiting = false;
  call.own_.added_ns += now_ns() - begin_ns;
}

std::vector<Profiled> profiled_so_far() {
  refuse_forked();
  std::map<SumKey, Measured> sums;
  AllSums& all = all_sums();
  {
    std::lock_guard<std::mutex> lock(all.mutex);
    auto add_all = [&](ThreadSums& one) {
      std::lock_guard<std::mutex> lock_one(one.mutex);
      for (const auto& [key, measured] : one.sums) sums[key].add(measured);
    };
    add_all(all.ended);
    for (ThreadSums* one : all.of_threads) add_all(*one);
  }
  std::vector<Profiled> out;
  for (const auto& [key, measured] : sums)
    out.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), measured});
  return out;
}

}  // namespace torch_fl
