// SPDX-License-Identifier: Apache-2.0
// Random programs over one small pool and several streams: whatever the pool reuses, each block
// keeps what the program wrote to it until the program frees it.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>

#include "streams_support.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

constexpr Size pool_size = 256 * MiB;
constexpr int steps = 400;

class RandomPoolProgram {
 public:
  explicit RandomPoolProgram(std::uint64_t seed) : random_(seed) {
    streams_ = {first_, second_, third_, blocking_, legacy_stream};
    if (chance(2)) keep_everything(pool_);
  }

  void run() {
    for (int step = 0; step < steps; ++step) {
      one_step();
      if (::testing::Test::HasFatalFailure()) return;
    }
    while (!live_.empty()) free(live_.begin());
    ASSERT_CUDA(synchronize());
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      ASSERT_EQ(seen_[i], expected_[i]) << "what was read back as number " << i;
    }
    EXPECT_EQ(used(pool_), 0u);
  }

 private:
  struct Block {
    Size size;
    std::uint32_t value;
    CUstream stream;  // in whose order the block is used
  };
  using Blocks = std::map<CUdeviceptr, Block>;

  bool chance(unsigned in) { return random_() % in == 0; }
  CUstream any_stream() { return streams_[random_() % streams_.size()]; }
  Blocks::iterator any_block() {
    return std::next(live_.begin(), static_cast<std::ptrdiff_t>(random_() % live_.size()));
  }
  Size any_size() {
    const Size most = Size{512} << (random_() % 17);  // up to 32 MiB
    return 512 + random_() % most / 4 * 4;
  }

  void one_step() {
    switch (random_() % 10) {
      case 0:
        if (!live_.empty()) hand_over(any_block());
        break;
      case 1:
        ASSERT_CUDA(driver().cuStreamSynchronize(any_stream()));
        break;
      case 2:
        if (chance(4)) {
          ASSERT_CUDA(driver().cuMemPoolTrimTo(pool_, random_() % pool_size));
        }
        break;
      case 3:
      case 4:
      case 5:
        if (!live_.empty()) free(any_block());
        break;
      default:
        allocate();
    }
  }

  void allocate() {
    const Block block{any_size(), ++last_value_, any_stream()};
    CUdeviceptr address = 0;
    const CUresult answer =
        driver().cuMemAllocFromPoolAsync(&address, block.size, pool_, block.stream);
    if (answer == CUDA_ERROR_OUT_OF_MEMORY) {
      if (!live_.empty()) free(any_block());
      return;
    }
    ASSERT_CUDA(answer);
    const auto next = live_.lower_bound(address);
    ASSERT_TRUE(next == live_.end() || address + block.size <= next->first) << "overlaps the next";
    ASSERT_TRUE(next == live_.begin() ||
                std::prev(next)->first + std::prev(next)->second.size <= address)
        << "overlaps the one before";
    live_.emplace(address, block);
    set_word(address, block);
    set_word(address + block.size - 4, block);
  }

  void set_word(CUdeviceptr address, const Block& block) {
    ASSERT_CUDA(driver().cuMemsetD32Async(address, block.value, 1, block.stream));
  }

  void read_word(CUdeviceptr address, const Block& block) {
    std::uint32_t* slot = seen_.data() + expected_.size();
    expected_.push_back(block.value);
    ASSERT_CUDA(driver().cuMemcpyDtoHAsync(slot, address, sizeof *slot, block.stream));
  }

  // Hands the block over to another stream, which uses it from now on.
  void hand_over(Blocks::iterator which) {
    const CUstream to = any_stream();
    order_behind(which->second.stream, to);
    which->second.stream = to;
    read_word(which->first, which->second);
  }

  void order_behind(CUstream earlier, CUstream later) {
    ASSERT_CUDA(driver().cuEventRecord(event_, earlier));
    ASSERT_CUDA(driver().cuStreamWaitEvent(later, event_, 0));
  }

  void free(Blocks::iterator which) {
    const auto [address, block] = *which;
    live_.erase(which);
    read_word(address, block);
    read_word(address + block.size - 4, block);
    CUstream on = block.stream;
    if (chance(4)) {
      on = any_stream();
      order_behind(block.stream, on);
    }
    ASSERT_CUDA(driver().cuMemFreeAsync(address, on));
  }

  std::mt19937_64 random_;
  const GivenPool pool_{CU_MEM_HANDLE_TYPE_NONE, pool_size};
  const GivenStream first_;
  const GivenStream second_;
  const GivenStream third_;
  const GivenStream blocking_{CU_STREAM_DEFAULT};
  const GivenEvent event_;
  std::vector<CUstream> streams_;
  PinnedWords seen_{Size{4} * steps};
  std::vector<std::uint32_t> expected_;
  Blocks live_;
  std::uint32_t last_value_ = 0;
};

class RandomPoolPrograms : public DriverContract {};

TEST_F(RandomPoolPrograms, KeepWhatTheyWrote) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  PRINT_SEED_ON_FAILURE();
  const std::uint64_t count = scaled(60);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t program = seed() * 1'000'003 + i;
    SCOPED_TRACE("program " + std::to_string(i) + ", its seed " + std::to_string(program));
    RandomPoolProgram{program}.run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace cuvmm::test
