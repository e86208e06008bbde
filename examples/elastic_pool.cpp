// SPDX-License-Identifier: Apache-2.0
// A pool of 128 GiB of addresses with at most 1 GiB of memory behind them.
//
//   c++ -std=c++20 elastic_pool.cpp -o elastic_pool $(pkg-config --cflags --libs cuvmm) -ldl
//
// README.md says how to build it if the compiler does not find cuvmm or cuda.h.
//
// Runs on the machine's card, or on the simulated driver (LD_LIBRARY_PATH=…/lib/cuvmm/sim). Exit
// status 0 if everything is right.
#include <cstdio>
#include <vector>

#include "cuvmm/elastic_pool.hpp"
#include "driver_calls.hpp"
#include "must.hpp"

const char* const program = "elastic_pool";

namespace {

constexpr std::uint64_t KiB = 1 << 10;
constexpr std::uint64_t MiB = 1 << 20;
constexpr std::uint64_t GiB = 1 << 30;

void print(const char* when, const cuvmm::ElasticPool& pool) {
  const cuvmm::ElasticPoolStats stats = pool.stats();
  std::printf("%-34s allocated %6.1f MiB, memory %6.1f MiB in %4llu granules, fragmentation %.3f\n",
              when, static_cast<double>(stats.allocated_bytes) / MiB,
              static_cast<double>(stats.physical_bytes) / MiB,
              static_cast<unsigned long long>(stats.mapped_granules), stats.fragmentation);
}

unsigned char first_byte(std::uint64_t address) {
  unsigned char byte = 0;
  must(CALL(cuMemcpyDtoH)(&byte, address, 1), "cuMemcpyDtoH");
  return byte;
}

// A memset returns before it has finished. The fence keeps the pool from unmapping memory too
// early.
void fill(cuvmm::ElasticPool& pool, std::uint64_t address, unsigned char value,
          std::uint64_t size) {
  must(CALL(cuMemsetD8)(address, value, size), "cuMemsetD8");
  must(pool.fence(nullptr));
}

}  // namespace

int main() {
  CUcontext context = nullptr;
  must(CALL(cuInit)(0), "cuInit");
  must(CALL(cuDevicePrimaryCtxRetain)(&context, 0), "cuDevicePrimaryCtxRetain");
  must(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");

  auto pool = must(cuvmm::ElasticPool::create(128 * GiB, {.physical_limit = 1 * GiB}));
  std::printf("128 GiB of addresses from 0x%llx on, in granules of %.0f MiB\n",
              static_cast<unsigned long long>(pool.base_address()),
              static_cast<double>(pool.granule()) / MiB);
  print("empty", pool);

  // Stretches far apart; the addresses between them have no memory.
  for (std::uint64_t i = 0; i < 16; ++i) {
    const auto stretch = must(pool.allocate_at(i * 8 * GiB, 48 * MiB));
    fill(pool, stretch.address, static_cast<unsigned char>(i + 1), 48 * MiB);
  }
  print("16 stretches, 8 GiB apart", pool);

  // All memory is in use. The pool reports what is missing, and nothing changes.
  const auto refused = pool.allocate(512 * MiB);
  must(!refused.ok() && refused.error().kind() == cuvmm::ErrorKind::OutOfPhysicalMemory,
       "the pool granted more than its limit");
  std::printf("  refused: %s\n", refused.error().message());

  for (std::uint64_t i = 0; i < 16; i += 2) {
    must(pool.deallocate(i * 8 * GiB, 48 * MiB));
  }
  print("every second one freed", pool);
  const auto large = must(pool.allocate(512 * MiB));
  fill(pool, large.address, 200, large.size);
  print("one piece of 512 MiB", pool);
  must(pool.deallocate(large));

  // Small pieces, one per granule. Compaction packs them into fewer granules.
  std::vector<std::uint64_t> small;
  for (std::uint64_t i = 0; i < 64; ++i) {
    const std::uint64_t offset = 4 * GiB + i * pool.granule() + i % 8 * 256 * KiB;
    const auto piece = must(pool.allocate_at(offset, 256 * KiB));
    fill(pool, piece.address, static_cast<unsigned char>(100 + i), piece.size);
    small.push_back(piece.address);
  }
  print("64 pieces of 256 KiB", pool);
  const cuvmm::Compaction done = must(pool.compact());
  print("after compaction", pool);
  must(done.moves.empty(), "compaction moved an allocation that is not movable");
  must(pool.granule() < 2 * MiB || done.physical_released > 0, "compaction released nothing");

  for (std::uint64_t i = 0; i < small.size(); ++i) {
    must(first_byte(small[i]) == 100 + i, "a small piece lost its contents");
  }
  for (std::uint64_t i = 1; i < 16; i += 2) {
    must(first_byte(pool.base_address() + i * 8 * GiB) == i + 1, "a stretch lost its contents");
  }
  std::printf("all contents read back as written\n");
  return 0;
}
