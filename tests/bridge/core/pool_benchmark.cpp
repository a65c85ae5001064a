// Nanoseconds of one allocate and release, per size and beside malloc and free; and with several threads.
#include <chrono>
#include <cmath>

#include "harness.h"

using namespace harness;

namespace {

template <class F>
double best_ns(int repeats, F&& f) {
  double best = 1e30;
  for (int attempt = 0; attempt < 7; attempt++) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; i++) f();
    std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / repeats);
  }
  return best;
}

double pool_ns(Device& d, uint64_t bytes, int held) {
  Stream& stream = d.streams().standard();
  std::vector<Block*> blocks(static_cast<size_t>(held));
  auto round = [&] {
    for (Block*& block : blocks) block = d.pool().allocate(bytes, stream);
    for (Block* block : blocks) d.pool().release(block);
  };
  round();
  double ns = best_ns(200000 / held, round) / held;
  d.pool().empty_cache();
  return ns;
}

double malloc_ns(uint64_t bytes) {
  return best_ns(20000, [&] {
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, bytes) != 0) std::abort();  // as torch's CPU allocator does
    __asm__ volatile("" : : "r"(memory) : "memory");
    std::free(memory);
  });
}

double threads_ns(Device& d, int n_threads) {
  constexpr int kRounds = 300000;
  auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int t = 0; t < n_threads; t++) {
    threads.emplace_back([&] {
      Stream& stream = d.streams().create(0);
      for (int i = 0; i < kRounds; i++) d.pool().release(d.pool().allocate(1024, stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  return took.count() / kRounds / n_threads;
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 3);
  add_reference_devices(argv + 1, "memory=4G");
  Device& d = device(0);
  std::printf("%12s %10s %14s %10s\n", "bytes", "pool, 1", "pool, 16 held", "malloc");
  double log_ratio = 0;
  int sizes = 0;
  for (uint64_t bytes = 64; bytes <= 64ull << 20; bytes *= 4, sizes++) {
    double pool = pool_ns(d, bytes, 1);
    double held = pool_ns(d, bytes, 16);
    double malloced = malloc_ns(bytes);
    log_ratio += std::log(pool / malloced);
    std::printf("%12llu %7.1f ns %11.1f ns %7.1f ns\n", static_cast<unsigned long long>(bytes), pool, held, malloced);
  }
  std::printf("geometric mean of pool / malloc: %.2f\n", std::exp(log_ratio / sizes));
  for (int n : {1, 2, 4}) std::printf("%d threads of 1024 bytes: %.1f ns\n", n, threads_ns(d, n));
  return 0;
}
