// SPDX-License-Identifier: Apache-2.0
// Functions that a newer driver has and cuvmm's lists lack.
#include "hook/unlisted.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "hook/driver_behind.hpp"

namespace cuvmm::test {
namespace {

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t,
                                    CUdriverProcAddressQueryResult*);

void* ask_door(const char* name, int version) {
  void* found = nullptr;
  const auto& doors = hook::all_doors()[static_cast<std::size_t>(Call::cuGetProcAddress_v2)];
  const CUresult answer =
      reinterpret_cast<GetProcAddress>(doors.legacy)(name, &found, version, 0, nullptr);
  EXPECT_EQ(answer, CUDA_SUCCESS) << name;
  return found;
}

// More arguments than fit in registers, both integers and floating point.
struct Given {
  long words[8];
  double numbers[10];
};
Given given{};

CUresult take_many(long a, long b, long c, long d, long e, long f, long g, long h, double i,
                   double j, double k, double l, double m, double n, double o, double p, double q,
                   double r) {
  given = {{a, b, c, d, e, f, g, h}, {i, j, k, l, m, n, o, p, q, r}};
  errno = 0;
  return CUDA_ERROR_ASSERT;
}

CUresult newer_copy() {
  return CUDA_SUCCESS;
}

TEST(UnlistedFunction, KeepsHookCoverageFullUntilItIsCalled) {
  engine_over_silent_driver();
  let_driver_have("cuMemTeleportAsync", reinterpret_cast<void*>(&take_many));
  ASSERT_TRUE(hook_coverage().is_whole());
  const std::uint32_t before = hook_coverage().unlisted();

  void* entry = ask_door("cuMemTeleportAsync", 14000);

  EXPECT_NE(entry, reinterpret_cast<void*>(&take_many));
  EXPECT_EQ(hook_coverage().unlisted(), before + 1);
  EXPECT_TRUE(hook_coverage().is_whole());

  const Listener listener;
  errno = 7;
  const CUresult answer = reinterpret_cast<decltype(&take_many)>(entry)(
      1, 2, 3, 4, 5, 6, 7, 8, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1.);

  EXPECT_EQ(answer, CUDA_ERROR_ASSERT);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(given.words[i], i + 1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(given.numbers[i], (i + 1) / 10.);
  EXPECT_FALSE(hook_coverage().is_whole());
  EXPECT_FALSE(engine_over_silent_driver().sees_everything());
  ASSERT_EQ(listener.heard().size(), 1u);
  EXPECT_EQ(listener.heard().front().call, unlisted_call);
  EXPECT_EQ(listener.heard().front().effect, every_effect);
}

TEST(UnlistedFunction, HasTheSameEntryEachTime) {
  engine_over_silent_driver();
  let_driver_have("cuMemFoldAsync", reinterpret_cast<void*>(&newer_copy));
  void* first = ask_door("cuMemFoldAsync", 14000);
  EXPECT_EQ(ask_door("cuMemFoldAsync", 14000), first);
  EXPECT_EQ(reinterpret_cast<decltype(&newer_copy)>(first)(), CUDA_SUCCESS);
}

// The name is known but not the signature: it must not be taken for the known one.
TEST(UnlistedFunction, MayHaveAListedName) {
  engine_over_silent_driver();
  static const auto newer = [](int) { return CUDA_ERROR_ALREADY_MAPPED; };
  CUresult (*const function)(int) = newer;
  let_driver_have("cuMemcpyAsync", reinterpret_cast<void*>(function));
  const std::uint32_t before = hook_coverage().unlisted();
  void* entry = ask_door("cuMemcpyAsync", 14000);
  EXPECT_EQ(hook_coverage().unlisted(), before + 1);
  EXPECT_EQ(reinterpret_cast<CUresult (*)(int)>(entry)(0), CUDA_ERROR_ALREADY_MAPPED);
}

TEST(UnlistedFunction, DoesNotIncludeCallsKnownToBeHarmless) {
  engine_over_silent_driver();
  void* real = reinterpret_cast<void*>(&newer_copy);
  const std::uint32_t before = hook_coverage().unlisted();
  EXPECT_EQ(hook::entry_of_unlisted("cuTexRefSetFormat", 12000, real), real);
  EXPECT_EQ(hook::entry_of_unlisted("cuProfilerStart", 12000, real), real);
  EXPECT_EQ(hook::entry_of_unlisted("cuMemAlloc", 3010, real), real);  // 32-bit, by version
  EXPECT_EQ(hook::entry_of_unlisted_symbol("cuMemAlloc", real), real);
  EXPECT_EQ(hook_coverage().unlisted(), before);
  EXPECT_NE(hook::entry_of_unlisted_symbol("cuMemTeleport", real), real);
}

TEST(ListedFunction, IsHandedOutAsItsDoor) {
  engine_over_silent_driver();
  EXPECT_EQ(ask_door("cuMemAlloc", 12000),
            hook::all_doors()[static_cast<std::size_t>(Call::cuMemAlloc_v2)].legacy);
  EXPECT_EQ(ask_door("cuMemcpyBatchAsync", 12080),
            hook::all_doors()[static_cast<std::size_t>(Call::cuMemcpyBatchAsync)].legacy);
  EXPECT_EQ(ask_door("cuMemcpyBatchAsync", 13000),
            hook::all_doors()[static_cast<std::size_t>(Call::cuMemcpyBatchAsync_v2)].legacy);
}

}  // namespace
}  // namespace cuvmm::test
