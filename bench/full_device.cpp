// SPDX-License-Identifier: Apache-2.0
// Goes on allocating and freeing blocks of random sizes on a device that is full, and prints what
// an allocation costs. A request that is refused frees a block instead.
//
//   full_device ordered|blocking LIVE_MIB LEAST_KIB MOST_KIB ALLOCATIONS
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <vector>

#include "bench/must_work.hpp"

namespace cuvmm::bench {
namespace {

constexpr std::size_t KiB = std::size_t{1} << 10;
constexpr std::size_t MiB = std::size_t{1} << 20;

struct Setting {
  bool is_ordered;
  std::size_t live;  // bytes, at most
  double least;      // bytes of a block
  double most;
  std::size_t allocations;
};

struct Block {
  CUdeviceptr address;
  std::size_t size;
};

class Program {
 public:
  explicit Program(const Setting& setting) : setting_(setting) {
    use_device();
    MUST_WORK(cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
  }

  void run() {
    while (took_us_.size() < setting_.allocations) {
      const std::size_t size = random_size();
      while (live_ + size > setting_.live) free_one();
      allocate(size);
    }
  }

  void print() {
    std::sort(took_us_.begin(), took_us_.end());
    double sum = 0;
    for (const double one : took_us_) sum += one;
    const auto share = [&](double part) {
      return took_us_[static_cast<std::size_t>(part * static_cast<double>(took_us_.size() - 1))];
    };
    std::printf(
        "%6zu blocks: mean %8.1f us, median %6.1f, 90%% %8.1f, 99%% %8.1f, most %8.0f; %zu "
        "refused\n",
        blocks_.size(), sum / static_cast<double>(took_us_.size()), share(0.5), share(0.9),
        share(0.99), took_us_.back(), refused_);
  }

 private:
  std::size_t random_size() {
    std::uniform_real_distribution<double> exponent{std::log(setting_.least),
                                                    std::log(setting_.most)};
    constexpr std::size_t step = 512;
    return static_cast<std::size_t>(std::exp(exponent(random_))) / step * step + step;
  }

  void allocate(std::size_t size) {
    CUdeviceptr address = 0;
    const auto began = std::chrono::steady_clock::now();
    const CUresult answer = setting_.is_ordered ? CALL(cuMemAllocAsync)(&address, size, stream_)
                                                : CALL(cuMemAlloc_v2)(&address, size);
    const auto took = std::chrono::steady_clock::now() - began;
    if (is_full_) took_us_.push_back(std::chrono::duration<double, std::micro>(took).count());
    if (answer == CUDA_SUCCESS) {
      blocks_.push_back({address, size});
      live_ += size;
      return;
    }
    ++refused_;
    free_one();
  }

  void free_one() {
    is_full_ = true;
    std::uniform_int_distribution<std::size_t> any{0, blocks_.size() - 1};
    Block& freed = blocks_[any(random_)];
    if (setting_.is_ordered) {
      MUST_WORK(cuMemFreeAsync, freed.address, stream_);
    } else {
      MUST_WORK(cuMemFree_v2, freed.address);
    }
    live_ -= freed.size;
    freed = blocks_.back();
    blocks_.pop_back();
  }

  const Setting setting_;
  CUstream stream_ = nullptr;
  std::mt19937_64 random_{1};
  std::vector<Block> blocks_;
  std::size_t live_ = 0;
  bool is_full_ = false;  // from the first free on
  std::size_t refused_ = 0;
  std::vector<double> took_us_;
};

}  // namespace
}  // namespace cuvmm::bench

int main(int count, char** words) {
  constexpr int wanted = 6;
  if (count != wanted) {
    std::fprintf(stderr, "usage: %s ordered|blocking LIVE_MIB LEAST_KIB MOST_KIB ALLOCATIONS\n",
                 words[0]);
    return 2;
  }
  const auto number = [&](int at) { return std::strtoull(words[at], nullptr, 10); };
  cuvmm::bench::Program program{{.is_ordered = std::string_view{words[1]} == "ordered",
                                 .live = number(2) * cuvmm::bench::MiB,
                                 .least = static_cast<double>(number(3) * cuvmm::bench::KiB),
                                 .most = static_cast<double>(number(4) * cuvmm::bench::KiB),
                                 .allocations = number(5)}};
  program.run();
  program.print();
  return 0;
}
