// SPDX-License-Identifier: Apache-2.0
// Resizing moves no data, and the program cannot tell.
#include "resize/world.hpp"

namespace cuvmm::test {
namespace {

class Elided : public ResizeTest {
 protected:
  // Resizes as programs do: allocate, copy, free. Returns the new block.
  CUdeviceptr resize(CUdeviceptr from, Size size, Size to_size) {
    const CUdeviceptr to = given_block(to_size);
    EXPECT_DONE(copy(to, from, std::min(size, to_size)));
    EXPECT_DONE(free(from));
    return to;
  }
};

TEST_F(Elided, AGrowKeepsTheContentsAndCopiesNothing) {
  const CUdeviceptr a = given_filled(block, 1);
  const CUdeviceptr b = given_put_off(a, block, 2 * block);
  const std::uint64_t copies = sim()->calls("cuMemcpyDtoDAsync");
  EXPECT_DONE(free(a));
  EXPECT_EQ(elided(), 1U) << why_run();
  EXPECT_EQ(elided_bytes(), block);
  EXPECT_EQ(sim()->calls("cuMemcpyDtoDAsync"), copies);
  EXPECT_FALSE(is_pending());
  expect_filled(b, block, 1);
  EXPECT_DONE(free(b));
}

TEST_F(Elided, AllOfTheNewBlockCanBeUsed) {
  const CUdeviceptr a = given_filled(block, 1);
  const CUdeviceptr b = resize(a, block, 2 * block);
  ASSERT_EQ(elided(), 1U) << why_run();
  fill(b, 2 * block, 7);
  expect_filled(b, 2 * block, 7);
  EXPECT_DONE(free(b));
}

TEST_F(Elided, EveryKindOfCopyIsDeferred) {
  CUstream stream = nullptr;
  ASSERT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
  const auto ptds = [](Call call) {
    return hook::all_doors()[static_cast<std::size_t>(call)].per_thread;
  };
  const std::vector<std::function<CUresult(CUdeviceptr, CUdeviceptr)>> ways = {
      [](auto to, auto from) { return through_door<Call::cuMemcpy>(to, from, block); },
      [](auto to, auto from) { return through_door<Call::cuMemcpyDtoD_v2>(to, from, block); },
      [&](auto to, auto from) {
        return through_door<Call::cuMemcpyAsync>(to, from, block, stream);
      },
      [&](auto to, auto from) {
        return through_door<Call::cuMemcpyDtoDAsync_v2>(to, from, block, stream);
      },
      [&](auto to, auto from) {
        return through_door<Call::cuMemcpyDtoDAsync_v2>(to, from, block, CUstream{});
      },
      [&](auto to, auto from) {
        return reinterpret_cast<decltype(&cuMemcpyDtoD_v2)>(ptds(Call::cuMemcpyDtoD_v2))(to, from,
                                                                                         block);
      },
      [&](auto to, auto from) {
        return reinterpret_cast<decltype(&cuMemcpyAsync)>(ptds(Call::cuMemcpyAsync))(
            to, from, block, CUstream{});
      },
      [&](auto to, auto from) {
        std::size_t size = block;
        std::size_t index = 0;
        CUmemcpyAttributes attributes{};
        attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        return through_door<Call::cuMemcpyBatchAsync_v2>(
            &to, &from, &size, std::size_t{1}, &attributes, &index, std::size_t{1}, stream);
      },
  };
  for (std::size_t way = 0; way < ways.size(); ++way) {
    SCOPED_TRACE("way " + std::to_string(way));
    const auto seed = static_cast<std::uint32_t>(way);
    const CUdeviceptr a = given_filled(block, seed);
    const CUdeviceptr b = given_block(2 * block);
    ASSERT_DONE(ways[way](b, a));
    EXPECT_TRUE(is_pending()) << why_run();
    EXPECT_DONE(free(a));
    EXPECT_EQ(elided(), way + 1) << why_run();
    expect_filled(b, block, seed);
    EXPECT_DONE(free(b));
  }
  EXPECT_DONE(through_door<Call::cuStreamDestroy_v2>(stream));
}

TEST_F(Elided, GrowthByDoublingAndByHalves) {
  for (const Size tenths : {20, 15}) {
    const std::uint64_t before = elided();
    Size size = block;
    CUdeviceptr address = given_filled(size, 3);
    for (int times = 0; times < 4; ++times) {
      const Size larger = size * tenths / 10;
      address = resize(address, size, larger);
      expect_filled(address, size, 3);
      fill(address, larger, 3);
      size = larger;
    }
    EXPECT_EQ(elided() - before, 4U) << why_run();
    EXPECT_DONE(free(address));
  }
}

TEST_F(Elided, AChainOfCopiesWithoutAReadInBetween) {
  CUdeviceptr address = given_filled(block, 4);
  for (Size larger = 2 * block; larger <= 16 * block; larger *= 2) {
    address = resize(address, block, larger);
  }
  EXPECT_EQ(elided(), 4U) << why_run();
  expect_filled(address, block, 4);
  EXPECT_DONE(free(address));
}

// Shrinking can move only chunks that fit, and a block that has grown has such chunks.
TEST_F(Elided, AShrinkOfAGrownBlock) {
  CUdeviceptr address = given_filled(block, 5);
  address = resize(address, block, 4 * block);
  fill(address, 4 * block, 5);
  address = resize(address, 4 * block, 2 * block);
  EXPECT_EQ(elided(), 2U) << why_run();
  expect_filled(address, 2 * block, 5);
  EXPECT_DONE(free(address));
}

// A block shares its last granule with others, so the contents there are copied.
TEST_F(Elided, CopiesBytesThatCannotMove) {
  const Size odd = block + 5 * KiB;
  const CUdeviceptr a = given_filled(odd, 6);
  const CUdeviceptr neighbour = given_filled(9 * KiB + block, 8);
  const CUdeviceptr b = resize(a, odd, 2 * block + 12 * KiB);
  EXPECT_EQ(elided(), 1U) << why_run();
  EXPECT_EQ(elided_bytes(), block);
  expect_filled(b, odd, 6);
  expect_filled(neighbour, 9 * KiB + block, 8);
  EXPECT_DONE(free(b));
  EXPECT_DONE(free(neighbour));
}

// A block from the allocator's cache is one chunk, and the copy covers only its beginning.
TEST_F(Elided, APartlyCoveredChunkIsReplaced) {
  const CUdeviceptr kept = given_block(3 * block);
  EXPECT_DONE(free(kept));
  const CUdeviceptr a = given_filled(2 * block, 9);
  const CUdeviceptr b = resize(a, 2 * block, 3 * block);
  EXPECT_EQ(elided(), 1U) << why_run();
  expect_filled(b, 2 * block, 9);
  fill(b, 3 * block, 10);
  expect_filled(b, 3 * block, 10);
  EXPECT_DONE(free(b));
}

TEST_F(Elided, LeavesNothingBehind) {
  const auto physical = [] {
    cuvmm_sim_counters counters{};
    sim()->read_counters(0, &counters);
    return counters.physical_bytes;
  };

  const auto requested = [] { return Engine::get()->serving()->memory.counters(0).requested_live; };

  const Size others = requested();
  CUdeviceptr address = given_filled(block, 1);
  const auto with_one = physical();
  for (int times = 0; times < 20; ++times) address = resize(address, block, block);
  EXPECT_EQ(elided(), 20U) << why_run();
  EXPECT_LE(physical(), with_one + block + 4 * granule);
  EXPECT_EQ(requested(), others + block);
  expect_filled(address, block, 1);
  EXPECT_DONE(free(address));
}

TEST_F(Elided, ByAnotherThreadsFree) {
  const CUdeviceptr a = given_filled(block, 1);
  const CUdeviceptr b = given_put_off(a, block, 2 * block);
  std::thread([&] {
    through_door<Call::cuCtxSetCurrent>(context_);
    EXPECT_DONE(free(a));
  }).join();
  EXPECT_EQ(elided(), 1U) << why_run();
  expect_filled(b, block, 1);
  EXPECT_DONE(free(b));
}

// The program's own work on A comes before the copy, so the elision waits for it as a free does.
TEST_F(Elided, AfterWorkThatStillRunsOnTheOldBlock) {
  const CUdeviceptr a = given_filled(block, 1);
  ASSERT_DONE(launch_through_door(kernels_->spin, CUstream{}, std::uint64_t{3'000'000}));
  ASSERT_DONE(launch_through_door(kernels_->fill, CUstream{}, std::uint64_t{a}, std::uint32_t{77},
                                  static_cast<std::uint32_t>(block / 4)));
  const CUdeviceptr b = given_put_off(a, block, 2 * block);
  EXPECT_DONE(free(a));
  EXPECT_EQ(elided(), 1U) << why_run();
  std::vector<std::uint32_t> words(block / 4);
  ASSERT_DONE(through_door<Call::cuMemcpyDtoH_v2>(static_cast<void*>(words.data()), b, block));
  EXPECT_EQ(std::count(words.begin(), words.end(), 77u), static_cast<std::ptrdiff_t>(block / 4));
  EXPECT_DONE(free(b));
}

}  // namespace
}  // namespace cuvmm::test
