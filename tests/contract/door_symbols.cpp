// SPDX-License-Identifier: Apache-2.0
// How a program gets a driver function: by dlsym, and by cuGetProcAddress with name and version.
#include <algorithm>
#include <ostream>
#include <string>

#include "support/child.hpp"
#include "support/driver_under_test.hpp"

namespace cuvmm {
// How GoogleTest prints a row.
void PrintTo(const CallInfo& row, std::ostream* out) {
  *out << row.symbol;
}
}  // namespace cuvmm

namespace cuvmm::test {
namespace {

struct Found {
  CUresult answer = CUDA_ERROR_UNKNOWN;
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
};

Found find(const char* name, int version, cuuint64_t flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM) {
  Found found;
  found.function = &found;  // so that a test notices an answer that sets no function
  found.answer = driver().cuGetProcAddress(name, &found.function, version, flags, &found.status);
  return found;
}

constexpr int per_thread_since = 7000;
constexpr auto per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

// Functions can only be told apart by comparison: the two doors need not lead to the same address.
void* function_of(const char* name, int version, cuuint64_t flags = 0) {
  const Found found = find(name, version, flags);
  EXPECT_CUDA(found.answer);
  EXPECT_EQ(found.status, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_NE(found.function, nullptr);
  return found.function;
}

class DoorOfRow : public ::testing::TestWithParam<CallInfo> {
 protected:
  void SetUp() override {
    if (driver().version < GetParam().since) GTEST_SKIP() << "newer than this driver";
    if (driver().version < 12000) GTEST_SKIP() << "this driver has no cuGetProcAddress_v2";
  }
};

TEST_P(DoorOfRow, IsOpenToItsSymbols) {
  EXPECT_NE(driver_symbol(GetParam().symbol), nullptr);
  if (GetParam().per_thread_symbol != nullptr) {
    EXPECT_NE(driver_symbol(GetParam().per_thread_symbol), nullptr);
  }
}

TEST_P(DoorOfRow, IsOpenToItsNameAndVersion) {
  EXPECT_NE(function_of(GetParam().name.data(), GetParam().since), nullptr);
}

TEST_P(DoorOfRow, LeadsToThePerThreadFormIfThereIsOne) {
  const CallInfo& row = GetParam();
  const int version = std::max(row.since, per_thread_since);
  if (version >= row.until) GTEST_SKIP() << "replaced before there were per-thread forms";
  const bool differs =
      function_of(row.name.data(), version) != function_of(row.name.data(), version, per_thread);
  EXPECT_EQ(differs, row.per_thread_symbol != nullptr);
}

INSTANTIATE_TEST_SUITE_P(Every, DoorOfRow, ::testing::ValuesIn(all_calls()),
                         [](const auto& row) { return std::string(row.param.symbol); });

class Door : public ::testing::Test {
 protected:
  void SetUp() override {
    if (driver().version < 12000) GTEST_SKIP() << "this driver has no cuGetProcAddress_v2";
  }
};

TEST_F(Door, LeadsToTheNewestFormThatTheVersionAllows) {
  EXPECT_EQ(function_of("cuCtxCreate", 3020), function_of("cuCtxCreate", 11030));
  EXPECT_NE(function_of("cuCtxCreate", 11030), function_of("cuCtxCreate", 11040));
  EXPECT_EQ(function_of("cuMemAlloc", 3020), function_of("cuMemAlloc", 12000));
}

TEST_F(Door, LeadsToTheSignatureOfTheVersion) {
  if (driver().version < 13000) GTEST_SKIP() << "this driver has only the older signature";
  EXPECT_NE(function_of("cuMemcpyBatchAsync", 12080), function_of("cuMemcpyBatchAsync", 13000));
}

TEST_F(Door, SaysThatTheVersionIsTooLow) {
  const Found found = find("cuMemAllocAsync", 11010);
  EXPECT_CUDA(found.answer);
  EXPECT_EQ(found.status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(found.function, nullptr);
}

TEST_F(Door, SaysThatThereIsNoSuchFunction) {
  const Found found = find("cuMakeCoffee", 12000);
  EXPECT_CUDA(found.answer);
  EXPECT_EQ(found.status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(found.function, nullptr);
}

TEST_F(Door, KnowsNoFunctionWithoutAName) {
  const Found found = find("", 12000);
  EXPECT_CUDA(found.answer);
  EXPECT_EQ(found.status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(found.function, nullptr);
}

TEST_F(Door, LeadsToNoPerThreadFormBelowTheVersionThatBroughtThem) {
  const Found found = find("cuMemcpy", 6050, per_thread);
  EXPECT_CUDA(found.answer);
  EXPECT_EQ(found.status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(found.function, nullptr);
}

TEST_F(Door, RefusesVersionsBeyondTheDriver) {
  void* function = nullptr;
  EXPECT_ANSWER(
      CUDA_ERROR_INVALID_VALUE,
      driver().cuGetProcAddress("cuMemAlloc", &function, driver().version + 1000, 0, nullptr));
}

TEST_F(Door, NeedsNoStatusOutput) {
  void* function = nullptr;
  EXPECT_CUDA(driver().cuGetProcAddress("cuMemAlloc", &function, 12000, 0, nullptr));
  EXPECT_EQ(function, function_of("cuMemAlloc", 12000));
}

// A card's driver crashes here; the simulated driver refuses.
TEST_F(Door, RefusesMissingArguments) {
  NEEDS_SIMULATED_DRIVER();
  void* function = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuGetProcAddress(nullptr, &function, 12000, 0, nullptr));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuGetProcAddress("cuMemAlloc", nullptr, 12000, 0, nullptr));
}

TEST_F(Door, RefusesUnknownFlags) {
  void* function = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuGetProcAddress("cuMemAlloc", &function, 12000, 0x40, nullptr));
}

TEST_F(Door, OfTheOlderFormFindsTheSame) {
  void* function = nullptr;
  ASSERT_CUDA(driver().cuGetProcAddress_v11030("cuMemAlloc", &function, 12000, 0));
  EXPECT_EQ(function, function_of("cuMemAlloc", 12000));
}

TEST_F(Door, OfTheOlderFormFailsForAnUnknownFunction) {
  void* function = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_NOT_FOUND,
                driver().cuGetProcAddress_v11030("cuMakeCoffee", &function, 12000, 0));
}

CHILD_ROLE(asks_at_the_door_before_the_start) {
  void* function = nullptr;
  EXPECT_CUDA(driver().cuGetProcAddress("cuInit", &function, 12000, 0, nullptr));
  EXPECT_NE(function, nullptr);
}

TEST_F(Door, IsOpenBeforeTheDriversStart) {
  EXPECT_EQ(run_child("asks_at_the_door_before_the_start"), 0);
}

TEST_F(Door, HasNoExportTableOfAnUnknownName) {
  CUuuid unknown{};
  const void* table = nullptr;
  const CUresult answer = driver().cuGetExportTable(&table, &unknown);
  EXPECT_NE(answer, CUDA_SUCCESS);
}

}  // namespace
}  // namespace cuvmm::test
