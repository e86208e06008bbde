// SPDX-License-Identifier: Apache-2.0
// The idea of the project in one scenario: an address is not memory. A heap with every second chunk
// free holds plenty of memory and no two free chunks side by side; mapped behind addresses of their
// own, the same chunks are one range.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

class Headline : public DriverContract {};

constexpr std::uint32_t of_neighbours = 0xAAAAAAAA;
constexpr std::uint32_t of_the_range = 0x5EA11E55;

std::string pretty(Size size) {
  return print_size(size);
}

void say(const std::string& what, const std::string& result) {
  std::printf("    %-38s %s\n", what.c_str(), result.c_str());
}

// The chunks at odd places: freed by the program, kept by the heap.
std::vector<std::size_t> every_second(std::size_t count) {
  std::vector<std::size_t> places;
  for (std::size_t i = 1; i < count; i += 2) places.push_back(i);
  return places;
}

// How many words of the device's memory differ from `value`, counted on the host.
std::uint64_t words_other_than(std::uint32_t value, CUdeviceptr address, Size size) {
  constexpr Size piece = 16 * MiB;
  std::vector<std::uint32_t> words(piece / sizeof value);
  std::uint64_t others = 0;
  for (Size done = 0; done < size; done += piece) {
    const Size length = std::min(piece, size - done);
    EXPECT_CUDA(driver().cuMemcpyDtoH(words.data(), address + done, length));
    for (Size i = 0; i < length / sizeof value; ++i) others += words[i] != value ? 1 : 0;
  }
  return others;
}

TEST_F(Headline, ScatteredMemoryBecomesOneRange) {
  const Size granule = granularity();
  const Size heap_size = round_down(memory_info().total / 16, 2 * granule);
  const auto chunk_count = static_cast<int>(heap_size / granule);
  kernels();  // loaded while there is memory left

  // Given a full card: other work holds most of it, and our heap of single chunks holds the rest.
  GivenBallast others{heap_size + 64 * MiB};
  auto heap = given_mapped(chunk_count, granule);
  GivenBallast rest{0};
  ASSERT_CUDA(driver().cuMemsetD32(heap.address(), of_neighbours, heap_size / 4));
  ASSERT_CUDA(synchronize());

  // When every second chunk is freed by its owner,
  const auto places = every_second(static_cast<std::size_t>(chunk_count));
  for (const std::size_t place : places) ASSERT_CUDA(heap.mapping(place).unmap());
  const Size free = granule * places.size();

  // then plain allocation cannot use them,
  CUdeviceptr plain = 0;
  const CUresult plain_answer = driver().cuMemAlloc(&plain, free);
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, plain_answer);

  // and mapping makes them one range,
  auto range = given_reservation(free);
  std::vector<GivenMapping> mappings;
  mappings.reserve(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    mappings.emplace_back(range.address() + i * granule, heap.chunk(places[i]));
  }
  ASSERT_CUDA(set_access(range.address(), free));

  // which one kernel fills and which reads back intact.
  ASSERT_CUDA(launch(kernels().fill, nullptr, Shape{.grid = 264, .block = 256}, range.address(),
                     of_the_range, static_cast<std::uint32_t>(free / 4)));
  ASSERT_CUDA(synchronize());
  const std::uint64_t wrong = words_other_than(of_the_range, range.address(), free);
  EXPECT_EQ(wrong, 0u);

  // No other chunk has changed.
  for (std::size_t place = 0; place < static_cast<std::size_t>(chunk_count); place += 2) {
    ASSERT_EQ(read_word(heap.address_of(place)), of_neighbours);
    ASSERT_EQ(read_word(heap.address_of(place) + granule - 4), of_neighbours);
  }

  std::printf(
      "\n"
      "  A heap of %s in chunks of %s, on a card with %s of free memory left.\n"
      "  Every second chunk is freed: %s in %zu pieces, no two of them side by side.\n",
      pretty(heap_size).c_str(), pretty(granule).c_str(), pretty(memory_info().free).c_str(),
      pretty(free).c_str(), places.size());
  say("largest contiguous free range", pretty(granule));
  say("cuMemAlloc(" + pretty(free) + ")", name_of(plain_answer));
  say("the freed chunks, mapped in a row", pretty(free) + " contiguous");
  say("filled by one kernel and read back",
      std::to_string(free / 4 - wrong) + " of " + std::to_string(free / 4) + " words right");
  std::printf("  No byte was copied and no live chunk was touched.\n\n");
}

}  // namespace
}  // namespace cuvmm::test
