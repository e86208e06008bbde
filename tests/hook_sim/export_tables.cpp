// SPDX-License-Identifier: Apache-2.0
// The driver's private tables: which of them end full hook coverage, and what changes then.
#include "hook/export_tables.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>

#include "hook_sim/on_primary_context.hpp"

namespace cuvmm::test {
namespace {

CUuuid named(const char (&bytes)[17]) {
  CUuuid id{};
  std::memcpy(id.bytes, bytes, sizeof id.bytes);
  return id;
}

// The simulated driver's only table, which cuvmm does not list.
constexpr char of_the_simulation[] = "cuvmm simulation";

CUresult ask_for_table(const CUuuid& id) {
  const void* table = nullptr;
  return through_door<Call::cuGetExportTable>(&table, &id);
}

TEST(ExportTables, AreIdentifiedByUuid) {
  EXPECT_TRUE(hook::is_known_export_table(
      named("\x6B\xD5\xFB\x6C\x5B\xF4\xE7\x4A\x89\x87\xD9\x39\x12\xFD\x9D\xF9")));
  EXPECT_TRUE(hook::is_known_export_table(
      named("\x0C\xA5\x0B\x8C\x10\x04\x92\x9A\x89\xA7\xD0\xDF\x10\xE7\x72\x86")));
  EXPECT_FALSE(hook::is_known_export_table(named(of_the_simulation)));
  EXPECT_STREQ(hook::text_of(named(of_the_simulation)).data(),
               "6375766D-6D20-7369-6D75-6C6174696F6E");
}

TEST(ExportTables, MissingInTheDriverChangeNothing) {
  open_driver();
  EXPECT_EQ(ask_for_table(named("nobody knows me!")), CUDA_ERROR_NOT_FOUND);
  EXPECT_TRUE(Engine::get()->sees_everything());
}

// Submits work that no door sees.
void hold_unseen(CUstream stream, CUdeviceptr word) {
  using Wait = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
  const auto wait = reinterpret_cast<Wait>(dlsym(open_driver(), "cuStreamWaitValue32_v2"));
  EXPECT_DONE(wait(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
}

// Runs in its own process, since coverage never comes back.
[[noreturn]] void use_an_unknown_table() {
  open_driver();
  CUcontext context = nullptr;
  EXPECT_DONE(through_door<Call::cuInit>(0u));
  EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&context, 0));
  EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(context));
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  EXPECT_DONE(through_door<Call::cuMemAlloc_v2>(&first, std::size_t{64 * KiB}));
  EXPECT_DONE(through_door<Call::cuMemAlloc_v2>(&second, std::size_t{64 * KiB}));
  void* host = nullptr;
  CUdeviceptr word = 0;
  EXPECT_DONE(through_door<Call::cuMemHostAlloc>(&host, std::size_t{64},
                                                 unsigned{CU_MEMHOSTALLOC_DEVICEMAP}));
  EXPECT_DONE(through_door<Call::cuMemHostGetDevicePointer_v2>(&word, host, 0u));
  __atomic_store_n(static_cast<std::uint32_t*>(host), 0, __ATOMIC_RELEASE);
  CUstream stream = nullptr;
  EXPECT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
  EXPECT_DONE(through_door<Call::cuMemFree_v2>(first));

  EXPECT_TRUE(Engine::get()->sees_everything());
  Engine::get()->scheduling().set_policy(Schedule::Fifo);
  EXPECT_DONE(ask_for_table(named(of_the_simulation)));
  EXPECT_FALSE(Engine::get()->sees_everything());
  EXPECT_FALSE(Engine::get()->scheduling().is_on());
  EXPECT_DONE(ask_for_table(named(of_the_simulation)));

  hold_unseen(stream, word);
  auto freed = std::async(std::launch::async, [&] {
    EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(context));
    return through_door<Call::cuMemFree_v2>(second);
  });
  EXPECT_EQ(freed.wait_for(std::chrono::milliseconds{50}), std::future_status::timeout)
      << "the free did not wait for work that it could not see";
  __atomic_store_n(static_cast<std::uint32_t*>(host), 1, __ATOMIC_RELEASE);
  EXPECT_DONE(freed.get());
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST(ExportTablesDeathTest, AnUnknownOneEndsHookCoverageAndIsNamed) {
  open_driver();
  const bool is_served = Engine::get()->serving() != nullptr;
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(use_an_unknown_table(), ::testing::ExitedWithCode(0),
              is_served ? "6375766D-6D20-7369-6D75-6C6174696F6E" : "");
}

// Through the third door.
TEST(ExportTablesDeathTest, AnUnknownOneEndsHookCoverageThroughAnyDoor) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto ask = [] {
    void* found = nullptr;
    CUdriverProcAddressQueryResult status{};
    EXPECT_DONE(through_door<Call::cuGetProcAddress_v2>("cuGetExportTable", &found, 13000,
                                                        cuuint64_t{0}, &status));
    const CUuuid id = named(of_the_simulation);
    const void* table = nullptr;
    EXPECT_DONE(reinterpret_cast<decltype(&cuGetExportTable)>(found)(&table, &id));
    EXPECT_NE(table, nullptr);
    std::_Exit(Engine::get()->sees_everything() ? 1 : 0);
  };
  EXPECT_EXIT(ask(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace cuvmm::test
