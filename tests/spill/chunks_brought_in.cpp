// SPDX-License-Identifier: Apache-2.0
// Spilled chunks of the program's that a call needs on the device.
#include <unistd.h>

#include "spilled_chunks.hpp"
#include "support/fault_sweep.hpp"

namespace cuvmm::test {
namespace {

class ChunksBroughtIn : public SpilledChunks {
 protected:
  static Result<void> bring_in(Program& program, Handle chunk) {
    const ProgramParts parts = parts_of(program);
    ChunkExchange exchange{parts};
    const auto done = exchange.bring_in([&] { return program.chunks->far(chunk); }, timeout);
    EXPECT_FALSE(program.calls.is_shut());
    return done;
  }
  // Whether another process could get it.
  static bool can_be_exported(Handle handle) {
    int file = -1;
    const CUresult answer = driver().cuMemExportToShareableHandle(
        &file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (answer == CUDA_SUCCESS) ::close(file);
    return answer == CUDA_SUCCESS;
  }
};

// Exportable chunks move as others do: they are exportable whenever they are on the device.
TEST_F(ChunksBroughtIn, AreExportableAgain) {
  Program program{driver(), settings(2 * granule)};
  OwnVirtualMemory own{program, 64 * MiB};
  const Handle fills = own.add(0, granule, exportable());
  const Handle chunk = own.add(8 * granule, 2 * granule, exportable());
  own.map(16 * granule, 2 * granule, chunk);
  own.allow(16 * granule, 2 * granule);
  fill_pattern(own.address(), granule, 1);
  fill_pattern(own.address() + 8 * granule, 2 * granule, 2);
  ASSERT_TRUE(program.chunks->is_far(chunk));
  Mover{program}.move_all();
  EXPECT_TRUE(program.chunks->is_far(fills));
  EXPECT_FALSE(program.chunks->is_far(chunk));
  EXPECT_TRUE(can_be_exported(program.chunks->handle_of(chunk)));
  EXPECT_FALSE(program.chunks->asked_properties(chunk).has_value()) << "as the driver says";
  own.remove(8 * granule, chunk);
  own.unmap(16 * granule);
  ASSERT_DONE(bring_in(program, fills));
  EXPECT_FALSE(program.chunks->is_far(fills));
  EXPECT_TRUE(can_be_exported(program.chunks->handle_of(fills)));
  expect_pattern(own.address(), granule, 1);
  EXPECT_EQ(spilled(program), 0U);
}

TEST_F(ChunksBroughtIn, ComeWithAllTheirAddressesOrStay) {
  Program program{driver(), settings(granule)};
  OwnVirtualMemory own{program, 64 * MiB};
  const Handle first = own.add(0, granule);
  const Handle chunk = own.add(8 * granule, granule);
  own.map(16 * granule, granule, chunk);
  own.allow(16 * granule, granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
  fill_pattern(own.address() + 8 * granule, granule, 2);
  ASSERT_TRUE(program.chunks->is_far(chunk));
  const auto refused = bring_in(program, chunk);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::OutOfMemory);
  EXPECT_TRUE(program.chunks->is_far(chunk));
  own.remove(0, first);
  ASSERT_DONE(bring_in(program, chunk));
  EXPECT_FALSE(program.chunks->is_far(chunk));
  EXPECT_EQ(native(program), granule);
  expect_pattern(own.address() + 8 * granule, granule, 2);
  expect_pattern(own.address() + 16 * granule, granule, 2);
  EXPECT_EQ(own.access(16 * granule), CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_FALSE(can_be_exported(program.chunks->handle_of(chunk))) << "not asked for";
  EXPECT_TRUE(bring_in(program, chunk).ok()) << "nothing to do";
}

TEST_F(ChunksBroughtIn, NeedNotBeMapped) {
  Program program{driver(), settings(granule)};
  OwnVirtualMemory own{program, 32 * MiB};
  const Handle first = own.add(0, granule);
  const Handle chunk = own.add(8 * granule, granule, exportable());
  fill_pattern(own.address() + 8 * granule, granule, 2);
  own.unmap(8 * granule);
  own.remove(0, first);
  ASSERT_TRUE(program.chunks->is_far(chunk));
  ASSERT_DONE(bring_in(program, chunk));
  EXPECT_FALSE(program.chunks->is_far(chunk));
  own.map(8 * granule, granule, chunk);
  own.allow(8 * granule, granule);
  expect_pattern(own.address() + 8 * granule, granule, 2);
}

TEST_F(ChunksBroughtIn, LoseNothingWhicheverCallFails) {
  const std::string held_before = held_by_the_process();
  for (const CUresult fault : {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY}) {
    bool untouched = false;
    for (std::uint64_t number = 1; !untouched && number < most_calls_of_a_scenario; ++number) {
      SCOPED_TRACE("driver call " + std::to_string(number) + " fails with " + name_of(fault));
      FaultyDriver faulty{driver()};
      {
        Program program{faulty, settings(granule)};
        OwnVirtualMemory own{program, 32 * MiB};
        const Handle first = own.add(0, granule);
        const Handle chunk = own.add(8 * granule, granule, exportable());
        fill_pattern(own.address() + 8 * granule, granule, 2);
        own.remove(0, first);
        faulty.fail_call(number, fault);
        const auto done = bring_in(program, chunk);
        untouched = faulty.faults() == 0;
        faulty.stop_failing();
        EXPECT_EQ(program.chunks->is_far(chunk), !done.ok());
        EXPECT_TRUE(done.ok() || !untouched);
        expect_pattern(own.address() + 8 * granule, granule, 2);
        ASSERT_DONE(bring_in(program, chunk));
        expect_pattern(own.address() + 8 * granule, granule, 2);
        EXPECT_EQ(native(program), granule);
        EXPECT_EQ(spilled(program), 0U);
      }
      EXPECT_EQ(retry_releases(), 0U);
      if (HasFailure()) return;
    }
    EXPECT_TRUE(untouched);
  }
  EXPECT_EQ(held_by_the_process(), held_before);
}

}  // namespace
}  // namespace cuvmm::test
