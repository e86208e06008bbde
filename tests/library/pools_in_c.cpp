// SPDX-License-Identifier: Apache-2.0
// The pools through the C interface: pointers, reserved fields, and where allocations lie.
#include <gtest/gtest.h>

#include "cuvmm/cuvmm.h"
#include "library/surroundings.hpp"

namespace cuvmm::test {
namespace {

TEST(LibraryPoolsInC, MissingPointersAreRefusedAndNothingHappens) {
  cuvmm_error error{};
  EXPECT_EQ(cuvmm_elastic_pool_create(MiB, nullptr, nullptr, &error), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cuvmm_elastic_pool_allocate(nullptr, 1, 0, nullptr, nullptr),
            CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cuvmm_shared_pool_activate(nullptr, "a", nullptr, nullptr),
            CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cuvmm_elastic_pool_base_address(nullptr), 0u);
  EXPECT_EQ(cuvmm_elastic_pool_is_mapped(nullptr, 0, 1), 0);
  cuvmm_elastic_pool_destroy(nullptr);
  cuvmm_shared_pool_destroy(nullptr);
}

TEST(LibraryPoolsInC, BothWaysToAllocateReportOffsetAndAddress) {
  cuvmm_elastic_pool* pool = nullptr;
  ASSERT_EQ(cuvmm_elastic_pool_create(64 * MiB, nullptr, &pool, nullptr), CUVMM_OK);
  const uint64_t base = cuvmm_elastic_pool_base_address(pool);
  cuvmm_pool_allocation placed{};
  ASSERT_EQ(cuvmm_elastic_pool_allocate_at(pool, 8 * MiB, MiB, 0, &placed, nullptr), CUVMM_OK);
  EXPECT_EQ(placed.offset, 8 * MiB);
  EXPECT_EQ(placed.address, base + 8 * MiB);
  EXPECT_EQ(placed.size, MiB);
  cuvmm_pool_allocation found{};
  ASSERT_EQ(cuvmm_elastic_pool_allocate(pool, 3000, 0, &found, nullptr), CUVMM_OK);
  EXPECT_EQ(found.address, base + found.offset);
  EXPECT_EQ(found.size, 3000u);
  EXPECT_EQ(cuvmm_elastic_pool_is_mapped(pool, found.offset, found.size), 1);
  EXPECT_EQ(cuvmm_elastic_pool_deallocate(pool, found.offset, found.size, nullptr), CUVMM_OK);
  // A caller that knows the place may omit the output; a refusal writes nothing.
  const cuvmm_pool_allocation before = placed;
  EXPECT_EQ(cuvmm_elastic_pool_allocate_at(pool, 8 * MiB, MiB, 0, &placed, nullptr),
            CUVMM_ERROR_ALREADY_MAPPED);
  EXPECT_EQ(placed.address, before.address);
  EXPECT_EQ(cuvmm_elastic_pool_allocate_at(pool, 0, MiB, 0, nullptr, nullptr), CUVMM_OK);
  cuvmm_elastic_pool_destroy(pool);
}

TEST(LibraryPoolsInC, AModelsAllocationsBeginAtItsBaseAddress) {
  cuvmm_shared_pool* pool = nullptr;
  ASSERT_EQ(cuvmm_shared_pool_create(32 * MiB, nullptr, &pool, nullptr), CUVMM_OK);
  uint64_t bases[2] = {};
  const char* const models[] = {"a", "b"};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(
        cuvmm_shared_pool_register_model(pool, models[i], 32 * MiB, nullptr, &bases[i], nullptr),
        CUVMM_OK);
    cuvmm_pool_allocation placed{};
    ASSERT_EQ(cuvmm_shared_pool_allocate_at(pool, models[i], 4 * MiB, MiB, 0, &placed, nullptr),
              CUVMM_OK);
    EXPECT_EQ(placed.offset, 4 * MiB);
    EXPECT_EQ(placed.address, bases[i] + 4 * MiB);
    cuvmm_pool_allocation found{};
    ASSERT_EQ(cuvmm_shared_pool_allocate(pool, models[i], MiB, 0, &found, nullptr), CUVMM_OK);
    EXPECT_EQ(found.address, bases[i] + found.offset);
    EXPECT_EQ(found.size, MiB);
  }
  EXPECT_EQ(cuvmm_shared_pool_allocate(pool, "a", MiB, 0, nullptr, nullptr),
            CUVMM_ERROR_INVALID_ARGUMENT);
  cuvmm_pool_allocation untouched{};
  EXPECT_NE(cuvmm_shared_pool_allocate(pool, "nobody", MiB, 0, &untouched, nullptr), CUVMM_OK);
  EXPECT_EQ(untouched.address, 0u);
  cuvmm_shared_pool_destroy(pool);
}

TEST(LibraryPoolsInC, ReservedFieldsMustBeZero) {
  cuvmm_elastic_pool* pool = nullptr;
  cuvmm_elastic_pool_options options{};
  options.reserved[0] = 1;
  EXPECT_EQ(cuvmm_elastic_pool_create(MiB, &options, &pool, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  options = {};
  options.places.placement = 9;
  EXPECT_EQ(cuvmm_elastic_pool_create(MiB, &options, &pool, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(pool, nullptr);
}

}  // namespace
}  // namespace cuvmm::test
