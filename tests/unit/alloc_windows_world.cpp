// SPDX-License-Identifier: Apache-2.0
#include "alloc_windows_world.hpp"

#include <algorithm>
#include <random>

namespace cuvmm::test {
namespace {

constexpr Size looked_at = 512;

WindowSettings settings_for(Size granule, Size memory, Quiescence& quiescence,
                            const std::function<void(WindowSettings&)>& change) {
  WindowSettings settings{.granule = granule,
                          .device_memory = memory,
                          .access = read_write(),
                          .reserve_step = 4 * GiB,
                          .wait = Duration{200'000},
                          .quiescence = &quiescence};
  if (change) change(settings);
  return settings;
}

}  // namespace

WindowsWorld::WindowsWorld(const Driver& with, Size memory,
                           const std::function<void(WindowSettings&)>& change)
    : driver(with),
      granule(GIVEN_VALUE(granularity_of(with, here))),
      budget(std::make_shared<LocalBudget>(memory)),
      store(with) {
  if (const auto served = store.serve(here, budget); !served.ok()) {
    throw std::runtime_error(served.error().text());
  }
  windows_ = GIVEN_VALUE(
      Windows::create(with, store, order, settings_for(granule, memory, quiescence, change)));
}

void WindowsWorld::spill(Size most) {
  spill_budget->set_limit(most);
  if (const auto served = store.serve_spilled(Location::host(0), spill_budget); !served.ok()) {
    throw std::runtime_error(served.error().text());
  }
}

WindowBlock& WindowsWorld::block(Size size) {
  return *GIVEN_VALUE(windows_->allocate(size));
}

std::vector<WindowBlock*> WindowsWorld::blocks(std::size_t count, Size size) {
  std::vector<WindowBlock*> taken(count);
  for (WindowBlock*& one : taken) one = &block(size);
  return taken;
}

std::vector<WindowBlock*> WindowsWorld::fill_with(Size size) {
  std::vector<WindowBlock*> blocks;
  for (;;) {
    const auto block = windows_->allocate(size);
    if (!block.ok()) {
      EXPECT_EQ(block.error().kind, ErrorKind::OutOfMemory) << block.error().text();
      return blocks;
    }
    blocks.push_back(*block);
  }
}

Size WindowsWorld::free_all(const std::vector<WindowBlock*>& blocks) {
  Size freed = 0;
  for (WindowBlock* block : blocks) {
    freed += block->granted();
    windows_->free(*block);
  }
  return freed;
}

Size WindowsWorld::free_every_second(std::vector<WindowBlock*>& blocks) {
  std::vector<WindowBlock*> kept;
  std::vector<WindowBlock*> going;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    (i % 2 == 0 ? kept : going).push_back(blocks[i]);
  }
  blocks.swap(kept);
  return free_all(going);
}

Size WindowsWorld::free_about_half(std::vector<WindowBlock*>& blocks, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  const auto half = std::stable_partition(blocks.begin(), blocks.end(),
                                          [&](const WindowBlock*) { return random() % 2 == 0; });
  const Size freed = free_all({half, blocks.end()});
  blocks.erase(half, blocks.end());
  return freed;
}

Size WindowsWorld::largest() {
  Size fits = 0;
  Size too_large = budget->limit() / granule + 1;
  while (fits + 1 < too_large) {
    const Size tried = (fits + too_large) / 2;
    if (const auto block = windows_->allocate(tried * granule); block.ok()) {
      windows_->free(**block);
      fits = tried;
    } else {
      too_large = tried;
    }
  }
  return fits * granule;
}

std::vector<CUdeviceptr> addresses_of(const std::vector<WindowBlock*>& blocks) {
  std::vector<CUdeviceptr> addresses(blocks.size());
  std::transform(blocks.begin(), blocks.end(), addresses.begin(),
                 [](const WindowBlock* block) { return block->address(); });
  return addresses;
}

void mark(CUdeviceptr address, Size size, std::uint64_t seed) {
  const Size end = std::min(size, looked_at);
  fill_pattern(address, end, seed);
  fill_pattern(address + size - end, end, seed + 1);
}

void expect_marked(CUdeviceptr address, Size size, std::uint64_t seed) {
  const Size end = std::min(size, looked_at);
  if (size >= 2 * looked_at) expect_pattern(address, end, seed);
  expect_pattern(address + size - end, end, seed + 1);
}

void mark(const WindowBlock& block) {
  mark(block.address(), block.granted(), block.address());
}
void expect_marked(const WindowBlock& block) {
  expect_marked(block.address(), block.granted(), block.address());
}

void expect_true(const Windows& windows, const std::vector<WindowBlock*>& blocks) {
  ASSERT_EQ(windows.violation().value_or("nothing"), "nothing");
  // Which block owns which bytes of which chunk.
  std::map<std::pair<CUmemGenericAllocationHandle, Size>, const WindowBlock*> pieces;
  for (const WindowBlock* block : blocks) {
    const Size granule = granularity();
    const CUdeviceptr window = round_down(block->address(), granule);
    for (const MappedChunk& mapped : windows.chunks_behind(*block).chunks) {
      const CUdeviceptr address = window + mapped.offset;
      CUmemGenericAllocationHandle handle = 0;
      ASSERT_CUDA(test::driver().cuMemRetainAllocationHandle(
          &handle, reinterpret_cast<void*>(address)));  // NOLINT(performance-no-int-to-ptr)
      ASSERT_CUDA(test::driver().cuMemRelease(handle));
      ASSERT_EQ(handle, mapped.chunk->handle()) << "behind the block at " << block->address();
      const CUdeviceptr first = std::max(address, block->address());
      const auto [place, is_new] = pieces.emplace(std::pair{handle, first - address}, block);
      ASSERT_TRUE(is_new) << "two blocks at the same bytes of a chunk";
      const CUdeviceptr end = std::min(address + mapped.chunk->size(), block->end());
      const auto next = std::next(place);
      if (next != pieces.end() && next->first.first == handle) {
        ASSERT_LE(end - address, next->first.second) << "a block reaches into the next one";
      }
      if (place != pieces.begin() && std::prev(place)->first.first == handle) {
        const auto& [before, owner] = *std::prev(place);
        const PlacedBlock other = owner->placed(granule);
        ASSERT_LE(before.second + other.piece().size, first - address)
            << "a block reaches into the one before";
      }
    }
  }
}

}  // namespace cuvmm::test
