// SPDX-License-Identifier: Apache-2.0
// Deferred copies when the process exits, forks, or calls an unknown function: each in its own
// process.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "hook/unlisted.hpp"
#include "resize/world.hpp"

namespace cuvmm::test {
namespace {

// A process with one deferred copy.
struct DeferredBlocks {
  DeferredBlocks() {
    open_driver();
    through_door<Call::cuInit>(0u);
    through_door<Call::cuDevicePrimaryCtxRetain>(&context, 0);
    through_door<Call::cuCtxSetCurrent>(context);
    GIVEN(through_door<Call::cuMemAlloc_v2>(&from, std::size_t{block}));
    GIVEN(through_door<Call::cuMemsetD32_v2>(from, mark, std::size_t{block / 4}));
    GIVEN(through_door<Call::cuCtxSynchronize>());
    GIVEN(through_door<Call::cuMemAlloc_v2>(&to, std::size_t{2 * block}));
    GIVEN(through_door<Call::cuMemcpyDtoD_v2>(to, from, std::size_t{block}));
    EXPECT_TRUE(resizer().is_pending());
  }
  static Resizer& resizer() { return *Engine::get()->serving()->resizer(); }
  static std::uint32_t read(CUdeviceptr at) {
    std::uint32_t word = 0;
    GIVEN(through_door<Call::cuMemcpyDtoH_v2>(static_cast<void*>(&word), at, sizeof word));
    return word;
  }

  static constexpr std::uint32_t mark = 0x5EED;
  CUcontext context = nullptr;
  CUdeviceptr from = 0;
  CUdeviceptr to = 0;
};

CUresult unknown_function() {
  return CUDA_SUCCESS;
}

}  // namespace

CHILD_ROLE(exits_with_a_copy_put_off) {
  const DeferredBlocks deferred;
  std::exit(::testing::Test::HasFailure() ? 1 : 0);
}

CHILD_ROLE(calls_what_nobody_knows) {
  const DeferredBlocks deferred;
  void* const entry =
      hook::entry_of_unlisted("cuMemFoldAsync", 14000, reinterpret_cast<void*>(&unknown_function));
  ASSERT_NE(entry, reinterpret_cast<void*>(&unknown_function));
  EXPECT_TRUE(DeferredBlocks::resizer().is_pending()) << "to be handed one changes nothing";
  EXPECT_DONE(reinterpret_cast<decltype(&unknown_function)>(entry)());
  EXPECT_FALSE(DeferredBlocks::resizer().is_pending());
  EXPECT_DONE(through_door<Call::cuMemFree_v2>(deferred.from));
  EXPECT_EQ(DeferredBlocks::read(deferred.to + block - 4), DeferredBlocks::mark);
  EXPECT_EQ(DeferredBlocks::resizer().counters().elided, 0U);
  // From then on no copy is deferred.
  CUdeviceptr other = 0;
  EXPECT_DONE(through_door<Call::cuMemAlloc_v2>(&other, std::size_t{4 * block}));
  EXPECT_DONE(through_door<Call::cuMemcpyDtoD_v2>(other, deferred.to, std::size_t{2 * block}));
  EXPECT_FALSE(DeferredBlocks::resizer().is_pending());
}

// The child has neither the memory nor the copy; the parent's are unaffected.
CHILD_ROLE(forks_with_a_copy_put_off) {
  const DeferredBlocks deferred;
  const pid_t forked = ::fork();
  if (forked == 0) {
    CUcontext context = nullptr;
    ::_exit(through_door<Call::cuCtxGetCurrent>(&context) == CUDA_SUCCESS && context != nullptr);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(forked, &status, 0), forked);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(DeferredBlocks::resizer().is_pending());
  EXPECT_DONE(through_door<Call::cuMemFree_v2>(deferred.from));
  EXPECT_EQ(DeferredBlocks::resizer().counters().elided, 1U);
  EXPECT_EQ(DeferredBlocks::read(deferred.to + block - 4), DeferredBlocks::mark);
}

namespace {

TEST(DeferredCopies, AreLeftByAProcessThatExits) {
  EXPECT_EQ(run_child("exits_with_a_copy_put_off"), 0);
}
TEST(DeferredCopies, AreRunBeforeAFunctionThatIsInNoList) {
  EXPECT_EQ(run_child("calls_what_nobody_knows"), 0);
}
TEST(DeferredCopies, OutliveAFork) {
  EXPECT_EQ(run_child("forks_with_a_copy_put_off"), 0);
}

}  // namespace
}  // namespace cuvmm::test
