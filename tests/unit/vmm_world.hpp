// SPDX-License-Identifier: Apache-2.0
// A store, addresses and a mapping for the tests of the mapping core.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/driver_under_test.hpp"
#include "support/memory.hpp"
#include "vmm/chunk_store.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm::test {

// Afterwards the driver must hold nothing that it did not hold before, and no release may be
// pending.
class VmmTest : public DriverContract {
 protected:
  void TearDown() override;
};

class VmmWorld {
 public:
  static constexpr Size usual_granules = 8;
  explicit VmmWorld(const Driver& driver, Size granules = usual_granules);

  const Driver& driver;
  const Location here = Location::device(0);
  const Size granule;
  const std::shared_ptr<LocalBudget> budget;
  ChunkStore store;
  Reservation addresses;
  Mapping mapping;

  ChunkKind kind(Size granules = 1) const { return {granules * granule, here, Export::No}; }
  // A chunk of this many granules, from the store.
  ChunkRef chunk(Size granules = 1);
  std::vector<ChunkRef> chunks(const std::vector<Size>& granules);
  Stretch stretch(Size first_granule, Size granules) const {
    return {first_granule * granule, granules * granule};
  }
  CUdeviceptr address(Size granule_index) const {
    return mapping.address_of(granule_index * granule);
  }

  // Maps chunks from this granule on, readable and writable by device 0, with contents that depend
  // on the seed and the place.
  void given_mapped(Size first_granule, const std::vector<Size>& granules, std::uint64_t seed);
};

inline AccessSet read_write(int device = 0) {
  return AccessSet::of(device);
}

// Which chunk is mapped where, with which access, and a digest of its contents where device 0 may
// read.
std::string describe(const Mapping& mapping);

// Checks the bookkeeping, and that the driver agrees: which handle is mapped at every granule, and
// which device has which access.
void expect_true(const Mapping& mapping);

::testing::AssertionResult is_ok(const char* expression, const Result<void>& result);
template <class T>
::testing::AssertionResult is_ok(const char* expression, const Result<T>& result) {
  return is_ok(expression, result.ok() ? Result<void>{} : Result<void>{result.error()});
}
#define EXPECT_OK(expression) EXPECT_PRED_FORMAT1(::cuvmm::test::is_ok, expression)
#define ASSERT_OK(expression) ASSERT_PRED_FORMAT1(::cuvmm::test::is_ok, expression)

// The kind of the Error, or "ok".
std::string outcome(const Result<void>& result);
template <class T>
std::string outcome(const Result<T>& result) {
  return outcome(result.ok() ? Result<void>{} : Result<void>{result.error()});
}

// Returns a value that the test depends on.
template <class T>
T given(Result<T> result, const char* what) {
  if (!result.ok()) throw std::runtime_error(std::string(what) + ": " + result.error().text());
  return std::move(result).value();
}
#define GIVEN_VALUE(expression) ::cuvmm::test::given(expression, #expression)

}  // namespace cuvmm::test
