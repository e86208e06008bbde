// SPDX-License-Identifier: Apache-2.0
// Fills the memory with blocks by cuMemAllocAsync, frees half of them, and asks for 90% of that as
// one block. Then finds out how much of it can be had. A plain program over the driver, for
// `cuvmm run --limit 4G`.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "bench/must_work.hpp"

namespace cuvmm::bench {
namespace {

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

enum class Freed { EverySecond, Pairs, Random };
constexpr const char* name_of(Freed freed) {
  return freed == Freed::EverySecond ? "every second" : freed == Freed::Pairs ? "pairs" : "random";
}

struct Block {
  CUdeviceptr address;
  std::size_t size;
  unsigned mark;
};

class Comb {
 public:
  Comb(std::size_t memory, Freed freed) : memory_(memory), freed_(freed) {
    MUST_WORK(cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
  }
  ~Comb() { MUST_WORK(cuStreamDestroy_v2, stream_); }

  void fill(std::size_t smallest, std::size_t largest) {
    std::size_t had = 0;
    for (;;) {
      const std::size_t size =
          smallest + random_() % ((largest - smallest) / (4 * KiB) + 1) * (4 * KiB);
      if (had + size > memory_) break;
      CUdeviceptr address = 0;
      if (CALL(cuMemAllocAsync)(&address, size, stream_) != CUDA_SUCCESS) break;
      mark({address, size, static_cast<unsigned>(random_())});
      had += size;
    }
    MUST_WORK(cuStreamSynchronize, stream_);
    first_ = had;
  }

  void free_half() {
    std::vector<Block> kept;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const bool goes = freed_ == Freed::EverySecond ? i % 2 == 1
                        : freed_ == Freed::Pairs     ? i / 2 % 2 == 1
                                                     : random_() % 2 == 1;
      if (!goes) {
        kept.push_back(blocks_[i]);
        continue;
      }
      MUST_WORK(cuMemFreeAsync, blocks_[i].address, stream_);
      gone_ += blocks_[i].size;
    }
    blocks_ = std::move(kept);
    MUST_WORK(cuStreamSynchronize, stream_);
  }

  // The largest block that can be had, in whole percents of what was freed. Asks for 90% first.
  int percent_back() {
    const auto began = std::chrono::steady_clock::now();
    const auto seconds_so_far = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    };
    int granted = 0;
    for (int refused = 101, percent = 90; refused - granted > 1;
         percent = (granted + refused) / 2) {
      const CUdeviceptr address = ask_for(percent);
      (address != 0 ? granted : refused) = percent;
      if (address != 0) MUST_WORK(cuMemFreeAsync, address, stream_);
      if (requests_ == 1) first_answer_ = seconds_so_far();
    }
    if (granted != 0) mark({ask_for(granted), bytes_of(granted), 1});
    MUST_WORK(cuStreamSynchronize, stream_);
    seconds_ = seconds_so_far();
    return granted;
  }

  std::size_t wrong() {
    std::size_t wrong = 0;
    std::vector<unsigned char> bytes;
    for (const Block& block : blocks_) {
      bytes.resize(block.size);
      MUST_WORK(cuMemcpyDtoH_v2, bytes.data(), block.address, block.size);
      const auto is_right = [&](unsigned char byte) { return byte == (block.mark & 0xff); };
      if (!std::all_of(bytes.begin(), bytes.end(), is_right)) ++wrong;
    }
    return wrong;
  }

  void end() {
    for (const Block& block : blocks_) MUST_WORK(cuMemFreeAsync, block.address, stream_);
    MUST_WORK(cuStreamSynchronize, stream_);
  }

  std::size_t first() const { return first_; }
  int requests() const { return requests_; }
  std::size_t gone() const { return gone_; }
  double first_answer() const { return first_answer_; }
  double seconds() const { return seconds_; }

 private:
  std::size_t bytes_of(int percent) const {
    return gone_ / 100 * static_cast<std::size_t>(percent);
  }

  CUdeviceptr ask_for(int percent) {  // 0 if it is refused
    CUdeviceptr address = 0;
    ++requests_;
    return CALL(cuMemAllocAsync)(&address, bytes_of(percent), stream_) == CUDA_SUCCESS ? address
                                                                                       : 0;
  }

  void mark(const Block& block) {
    MUST_WORK(cuMemsetD8Async, block.address, static_cast<unsigned char>(block.mark & 0xff),
              block.size, stream_);
    blocks_.push_back(block);
  }

  const std::size_t memory_;
  const Freed freed_;
  std::mt19937_64 random_{1};
  CUstream stream_ = nullptr;
  std::vector<Block> blocks_;
  std::size_t first_ = 0;
  std::size_t gone_ = 0;
  int requests_ = 0;
  double first_answer_ = 0;
  double seconds_ = 0;
};

void run(std::size_t memory, std::size_t smallest, std::size_t largest, Freed freed) {
  Comb comb{memory, freed};
  comb.fill(smallest, largest);
  comb.free_half();
  const int percent = comb.percent_back();
  std::printf(
      "%5zu..%5zu KiB, %-12s: %5zu MiB held, %5zu MiB freed, 90%% %s in %.3f s, at most %3d%% in "
      "%.3f "
      "s, %d requests, %zu wrong\n",
      smallest / KiB, largest / KiB, name_of(freed), comb.first() / MiB, comb.gone() / MiB,
      percent >= 90 ? "granted" : "refused", comb.first_answer(), percent, comb.seconds(),
      comb.requests(), comb.wrong());
  std::fflush(stdout);
  comb.end();
  CUmemoryPool pool = nullptr;
  MUST_WORK(cuDeviceGetDefaultMemPool, &pool, 0);
  MUST_WORK(cuMemPoolTrimTo, pool, 0);
}

int main(const std::vector<std::size_t>& only) {
  use_device();
  std::size_t free = 0;
  std::size_t total = 0;
  MUST_WORK(cuMemGetInfo_v2, &free, &total);
  const std::vector<std::size_t> usual{64, 100, 128, 256, 512, 1000, 1024, 1536, 3000, 3072};
  for (const std::size_t size : only.empty() ? usual : only) {
    for (const Freed freed : {Freed::EverySecond, Freed::Pairs, Freed::Random}) {
      run(free, size * KiB, size * KiB, freed);
    }
  }
  if (!only.empty()) return 0;
  run(free, 64 * KiB, 1000 * KiB, Freed::Random);
  run(free, 64 * KiB, 4096 * KiB, Freed::Random);
  return 0;
}

}  // namespace
}  // namespace cuvmm::bench

// With arguments, blocks of so many KiB instead of the usual sizes.
int main(int count, char** words) {
  std::vector<std::size_t> only;
  for (int i = 1; i < count; ++i) only.push_back(std::strtoull(words[i], nullptr, 10));
  return cuvmm::bench::main(only);
}
