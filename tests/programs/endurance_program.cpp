// SPDX-License-Identifier: Apache-2.0
// Allocates, fills, copies, grows, shares, checks and frees memory at random from several threads
// until a time or a count is reached, with all the memory that it can get. Fails at the first wrong
// word or unexpected answer. Repeatable by its seed as far as threads allow.
//
//   endurance [--seconds N | --operations N] [--seed N] [--threads N] [--largest BYTES]
//             [--hold BYTES] [--share N]
//
// --share N: one of N checks of a block is made by another process, which opens it by an IPC
// handle.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "examples/driver_calls.hpp"
#include "tests/programs/other_process.hpp"

namespace {

[[noreturn]] void missing_driver(const char* symbol) {
  std::fprintf(stderr, "endurance: no driver with %s\n", symbol);
  std::_Exit(1);
}

struct Options {
  double seconds = 0;
  std::uint64_t operations = 20000;  // of each thread
  std::uint64_t seed = 1;
  unsigned threads = 4;
  std::size_t largest = std::size_t{64} << 20;
  std::size_t hold = ~std::size_t{0};  // limit on what all threads together hold
  unsigned share = 0;
};
Options options;
CUcontext context = nullptr;
std::atomic<std::size_t> held{0};
std::chrono::steady_clock::time_point end_of_time;

struct Counts {
  std::uint64_t operations = 0;
  std::uint64_t granted = 0;
  std::uint64_t refused = 0;
  std::uint64_t grown = 0;
  std::uint64_t words_checked = 0;
  std::uint64_t shared = 0;
};

[[noreturn]] void fail(const char* what, std::uint64_t expected, std::uint64_t got) {
  std::fprintf(stderr, "endurance: seed %" PRIu64 ": %s: expected %" PRIu64 ", got %" PRIu64 "\n",
               options.seed, what, expected, got);
  std::fflush(stderr);
  std::_Exit(1);
}
void check(CUresult answer, const char* what) {
  if (answer != CUDA_SUCCESS) fail(what, CUDA_SUCCESS, static_cast<std::uint64_t>(answer));
}

std::optional<OtherProcess> other_process;

struct Block {
  CUdeviceptr address = 0;
  bool is_blocking = false;
  std::size_t words = 0;
  // The words from `begin` on hold `first`; earlier words, copied from a smaller block, hold
  // `second`.
  std::size_t begin = 0;
  std::uint32_t first = 0;
  std::uint32_t second = 0;

  std::size_t bytes() const { return words * 4; }
  std::uint32_t expected(std::size_t word) const { return word < begin ? second : first; }
};

class Worker {
 public:
  explicit Worker(unsigned number) : random_(options.seed * 1000 + number) {}

  Counts run() {
    check(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
    check(CALL(cuStreamCreate)(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    while (goes_on()) {
      ++counts_.operations;
      step();
    }
    while (!blocks_.empty()) give_back(blocks_.size() - 1);
    check(CALL(cuStreamSynchronize)(stream_), "cuStreamSynchronize");
    check(CALL(cuStreamDestroy)(stream_), "cuStreamDestroy");
    return counts_;
  }

 private:
  bool goes_on() const {
    if (options.seconds > 0) return std::chrono::steady_clock::now() < end_of_time;
    return counts_.operations < options.operations;
  }

  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }

  // Distributed evenly on a logarithmic scale.
  std::size_t some_size() {
    std::size_t bits = 0;
    while ((std::size_t{1} << (bits + 1)) <= options.largest) ++bits;
    const std::size_t power = std::size_t{1} << (2 + below(bits - 1));
    return power + below(power);
  }

  void step() {
    switch (below(8)) {
      case 0:
      case 1:
      case 2:
        return take();
      case 3:
        return blocks_.empty() ? take() : grow(below(blocks_.size()));
      case 4:
      case 5:
        return blocks_.empty() ? take() : verify(blocks_[below(blocks_.size())]);
      default:
        if (!blocks_.empty()) give_back(below(blocks_.size()));
    }
  }

  bool allocate(Block& block, std::size_t bytes) {
    if (held.load(std::memory_order_relaxed) + bytes > options.hold) return false;
    block.is_blocking = below(2) == 0;
    const CUresult answer = block.is_blocking
                                ? CALL(cuMemAlloc)(&block.address, bytes)
                                : CALL(cuMemAllocAsync)(&block.address, bytes, stream_);
    if (answer == CUDA_ERROR_OUT_OF_MEMORY) {
      ++counts_.refused;
      return false;
    }
    check(answer, "an allocation");
    if (block.address % 256 != 0) fail("an address's rest by 256", 0, block.address % 256);
    ++counts_.granted;
    block.words = bytes / 4;
    held.fetch_add(block.bytes(), std::memory_order_relaxed);
    return true;
  }

  void take() {
    Block block;
    if (!allocate(block, some_size())) return make_room();
    block.first = static_cast<std::uint32_t>(random_());
    if (block.words > 0)
      check(CALL(cuMemsetD32Async)(block.address, block.first, block.words, stream_), "a set");
    blocks_.push_back(block);
  }

  // malloc, copy, free: the way that programs enlarge a buffer.
  void grow(std::size_t place) {
    const Block old = blocks_[place];
    if (old.words == 0 || old.begin != 0 || old.bytes() * 2 > options.largest) return;
    Block block;
    if (!allocate(block, old.bytes() + old.bytes() / 2)) return make_room();
    block.begin = old.words;
    block.second = old.first;
    block.first = static_cast<std::uint32_t>(random_());
    if (old.is_blocking && block.is_blocking && below(2) == 0) {
      move_at_once(block, place);
    } else {
      check(CALL(cuMemcpyDtoDAsync)(block.address, old.address, old.bytes(), stream_), "a copy");
      give_back(place);
    }
    if (block.words > block.begin) {
      check(CALL(cuMemsetD32Async)(block.address + block.begin * 4, block.first,
                                   block.words - block.begin, stream_),
            "a set");
    }
    blocks_.push_back(block);
    ++counts_.grown;
  }

  // As in programs that use no streams. The free waits for the copy, but need not.
  void move_at_once(const Block& block, std::size_t place) {
    const Block old = taken_from_list(place);
    check(CALL(cuStreamSynchronize)(stream_), "a wait");
    check(CALL(cuMemcpyDtoD)(block.address, old.address, old.bytes()), "a copy");
    check(CALL(cuMemFree)(old.address), "cuMemFree");
    check(CALL(cuStreamSynchronize)(CU_STREAM_LEGACY), "a wait");
  }

  Block taken_from_list(std::size_t place) {
    const Block block = blocks_[place];
    blocks_[place] = blocks_.back();
    blocks_.pop_back();
    held.fetch_sub(block.bytes(), std::memory_order_relaxed);
    return block;
  }

  void verify(const Block& block) {
    if (block.words == 0) return;
    const std::size_t words = std::min<std::size_t>(block.words, 4096);
    const std::size_t begin = below(block.words - words + 1);
    // For smaller blocks the driver also shares the memory beside them.
    constexpr std::size_t least_shared = std::size_t{2} << 20;
    if (other_process && block.is_blocking && block.bytes() >= least_shared &&
        below(options.share) == 0) {
      check(CALL(cuStreamSynchronize)(stream_), "a wait");
      other_process->look_at(block.address,
                             {{}, begin, words, block.begin, block.second, block.first});
      ++counts_.shared;
      return;
    }
    read_.resize(words);
    check(CALL(cuMemcpyDtoHAsync)(read_.data(), block.address + begin * 4, words * 4, stream_),
          "a copy to the host");
    check(CALL(cuStreamSynchronize)(stream_), "a wait");
    for (std::size_t i = 0; i < words; ++i) {
      if (read_[i] != block.expected(begin + i)) {
        fail("a word", block.expected(begin + i), read_[i]);
      }
    }
    counts_.words_checked += words;
  }

  void give_back(std::size_t place) {
    if (below(4) == 0) verify(blocks_[place]);
    const Block block = taken_from_list(place);
    // A blocking free of stream-ordered memory does not wait, so this waits for the work.
    if (below(2) == 0) {
      check(CALL(cuStreamSynchronize)(stream_), "a wait");
      check(CALL(cuMemFree)(block.address), "cuMemFree");
    } else {
      check(CALL(cuMemFreeAsync)(block.address, stream_), "cuMemFreeAsync");
    }
  }

  void make_room() {
    for (std::size_t left = blocks_.size() / 2; left > 0; --left) give_back(below(blocks_.size()));
  }

  std::mt19937_64 random_;
  CUstream stream_ = nullptr;
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> read_;
  Counts counts_;
};

CUdevice use_device() {
  CUdevice device = 0;
  check(CALL(cuInit)(0), "cuInit");
  check(CALL(cuDeviceGet)(&device, 0), "cuDeviceGet");
  check(CALL(cuDevicePrimaryCtxRetain)(&context, device), "cuDevicePrimaryCtxRetain");
  check(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
  return device;
}
void leave_device(CUdevice device) {
  check(CALL(cuDevicePrimaryCtxRelease)(device), "cuDevicePrimaryCtxRelease");
}

// The resident host memory of this process.
std::size_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long total = 0;
  unsigned long resident = 0;
  if (file == nullptr || std::fscanf(file, "%lu %lu", &total, &resident) != 2) resident = 0;
  if (file != nullptr) std::fclose(file);
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

void run_all(Counts& sum, double seconds) {
  end_of_time = std::chrono::steady_clock::now() +
                std::chrono::microseconds(static_cast<std::int64_t>(seconds * 1e6));
  std::vector<Counts> counts(options.threads);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < options.threads; ++i)
    threads.emplace_back([i, &counts] { counts[i] = Worker(i).run(); });
  for (std::thread& thread : threads) thread.join();
  for (const Counts& one : counts) {
    sum.operations += one.operations;
    sum.granted += one.granted;
    sum.refused += one.refused;
    sum.grown += one.grown;
    sum.words_checked += one.words_checked;
    sum.shared += one.shared;
  }
}

bool read_options(int count, char** words) {
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view name = words[i];
    const double value = std::strtod(words[i + 1], nullptr);
    if (name == "--seconds") {
      options.seconds = value;
    } else if (name == "--operations") {
      options.operations = static_cast<std::uint64_t>(value);
    } else if (name == "--seed") {
      options.seed = static_cast<std::uint64_t>(value);
    } else if (name == "--threads") {
      options.threads = static_cast<unsigned>(value);
    } else if (name == "--largest") {
      options.largest = static_cast<std::size_t>(value);
    } else if (name == "--hold") {
      options.hold = static_cast<std::size_t>(value);
    } else if (name == "--share") {
      options.share = static_cast<unsigned>(value);
    } else {
      return false;
    }
  }
  return count % 2 == 1 && options.largest >= 16;
}

}  // namespace

int main(int count, char** words) {
  if (count == 3 && std::string_view{words[1]} == OtherProcess::role) {
    const CUdevice device = use_device();
    OtherProcess::answer_all(words[2]);
    leave_device(device);
    return 0;
  }
  if (!read_options(count, words)) {
    std::fprintf(stderr,
                 "usage: endurance [--seconds N | --operations N] [--seed N] [--threads N] "
                 "[--largest BYTES] [--hold BYTES] [--share N]\n");
    return 2;
  }
  if (options.share != 0) other_process.emplace();
  const CUdevice device = use_device();

  // The first part warms up whatever grows only once; the output shows what the second part adds to
  // the host's memory.
  Counts counts;
  run_all(counts, options.seconds / 4);
  const std::size_t resident_before = resident_bytes();
  run_all(counts, options.seconds * 3 / 4);
  const std::size_t resident_after = resident_bytes();

  std::printf("operations %" PRIu64 "\ngranted %" PRIu64 "\nrefused %" PRIu64 "\ngrown %" PRIu64
              "\nwords_checked %" PRIu64 "\nshared %" PRIu64
              "\nhost_mib_before %zu\nhost_mib_after %zu\n",
              counts.operations, counts.granted, counts.refused, counts.grown, counts.words_checked,
              counts.shared, resident_before >> 20, resident_after >> 20);
  other_process.reset();
  leave_device(device);
  return 0;
}
