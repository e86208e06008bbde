// SPDX-License-Identifier: Apache-2.0
#include "vmm_world.hpp"

#include <algorithm>
#include <cstring>

#include "vmm/deferred_release.hpp"

namespace cuvmm::test {
namespace {

// Enough to tell contents apart, little enough to read repeatedly.
constexpr Size looked_at = 256;

std::uint64_t digest(CUdeviceptr address) {
  const std::vector<std::byte> bytes = read(address, looked_at);
  std::uint64_t sum = 14695981039346656037u;
  for (const std::byte byte : bytes)
    sum = (sum ^ static_cast<std::uint64_t>(byte)) * 1099511628211u;
  return sum;
}

unsigned long long flags_of(Access access) {
  if (access == Access::None) return CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return access == Access::Read ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

}  // namespace

void VmmTest::TearDown() {
  EXPECT_EQ(deferred_releases(), 0u);
  DriverContract::TearDown();
}

VmmWorld::VmmWorld(const Driver& with, Size granules)
    : driver(with),
      granule(GIVEN_VALUE(granularity_of(with, here))),
      budget(std::make_shared<LocalBudget>()),
      store(with),
      addresses(GIVEN_VALUE(Reservation::create(with, granules * granule, granule))),
      mapping(Mapping::of(addresses)) {
  if (const auto served = store.serve(here, budget); !served.ok()) {
    throw std::runtime_error(served.error().text());
  }
}

ChunkRef VmmWorld::chunk(Size granules) {
  return GIVEN_VALUE(store.take(kind(granules)));
}

std::vector<ChunkRef> VmmWorld::chunks(const std::vector<Size>& granules) {
  std::vector<ChunkRef> taken;
  for (const Size size : granules) taken.push_back(chunk(size));
  return taken;
}

void VmmWorld::given_mapped(Size first_granule, const std::vector<Size>& granules,
                            std::uint64_t seed) {
  MapPlan plan;
  Size at = first_granule;
  for (const Size size : granules) {
    plan.map(mapping, at * granule, chunk(size), read_write());
    at += size;
  }
  if (const auto done = plan.commit(); !done.ok()) throw std::runtime_error(done.error().text());
  for (Size i = first_granule; i < at; ++i) {
    // Marks both ends of every granule, so that a piece that was not copied shows.
    fill_pattern(address(i), looked_at, seed * 1000 + i);
    fill_pattern(address(i + 1) - looked_at, looked_at, seed * 1000 + i + 500);
  }
}

std::string describe(const Mapping& mapping) {
  std::string text;
  mapping.for_each([&](const MappedChunk& mapped) {
    text += std::to_string(mapped.offset / mapping.granule()) + "+" +
            std::to_string(mapped.chunk->size() / mapping.granule()) + " handle " +
            std::to_string(mapped.chunk->handle()) + " for " + mapped.access.print();
    if (mapped.access.of_device(0) != Access::None) {
      const CUdeviceptr begin = mapping.address_of(mapped.offset);
      for (Size at = 0; at < mapped.chunk->size(); at += mapping.granule()) {
        text += " " + std::to_string(digest(begin + at)) + "," +
                std::to_string(digest(begin + at + mapping.granule() - looked_at));
      }
    }
    text += "\n";
  });
  return text;
}

void expect_true(const Mapping& mapping) {
  ASSERT_EQ(mapping.violation().value_or("nothing"), "nothing");
  for (Size at = 0; at < mapping.size(); at += mapping.granule()) {
    const MappedChunk* const mapped = mapping.find(at);
    const CUdeviceptr address = mapping.address_of(at);
    CUmemGenericAllocationHandle handle = 0;
    const CUresult answer = test::driver().cuMemRetainAllocationHandle(
        &handle, reinterpret_cast<void*>(address));  // NOLINT(performance-no-int-to-ptr)
    ASSERT_EQ(answer == CUDA_SUCCESS, mapped != nullptr)
        << "at granule " << at / mapping.granule() << ": " << name_of(answer);
    if (mapped == nullptr) continue;
    ASSERT_CUDA(test::driver().cuMemRelease(handle));
    ASSERT_EQ(handle, mapped->chunk->handle()) << "at granule " << at / mapping.granule();
    for (int device = 0; device < device_count(); ++device) {
      ASSERT_EQ(rights(address, device), flags_of(mapped->access.of_device(device)))
          << "at granule " << at / mapping.granule() << " for device " << device;
    }
  }
}

::testing::AssertionResult is_ok(const char* expression, const Result<void>& result) {
  if (result.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << expression << "\n  failed: " << result.error().text();
}

std::string outcome(const Result<void>& result) {
  return result.ok() ? "ok" : name_of(result.error().kind);
}

}  // namespace cuvmm::test
