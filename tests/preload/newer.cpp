// SPDX-License-Identifier: Apache-2.0
// Programs on a driver that is newer than cuvmm's lists.
#include <gtest/gtest.h>

#include "preload/run_program.hpp"

namespace cuvmm::test {
namespace {

Variables newer(Variables more = {}) {
  more["LD_LIBRARY_PATH"] = sim_directory() + "/../../../tests/programs/newer";
  return more;
}

void expect_same(const std::vector<std::string>& words) {
  std::vector<std::string> command{program("newer")};
  command.insert(command.end(), words.begin(), words.end());
  const Finished alone = run_program(command, newer());
  ASSERT_EQ(alone.status, 0) << alone.out << alone.err;

  const Finished under = run_program(command, under_cuvmm(newer()));

  EXPECT_EQ(under.status, 0) << under.out << under.err;
  EXPECT_EQ(under.out, alone.out);
}

// A linked function has no door, so its work is not seen: the free of the memory must wait for the
// device, as it does natively.
TEST(NewerDriver, KeepsMemoryThatALinkedFunctionUses) {
  expect_same({"early", library_of_programs("newer_user")});
}

TEST(NewerDriver, KeepsMemoryThatALinkedFunctionOfALibraryOpenedLaterUses) {
  expect_same({"late", library_of_programs("newer_user")});
}

// What a lookup in a scope finds depends on the caller, so the program gets the function itself.
TEST(NewerDriver, KeepsMemoryThatAFunctionFoundInAScopeUses) {
  for (const char* const scope : {"default", "next"}) {
    SCOPED_TRACE(scope);
    expect_same({scope});
  }
}

// Such a library finds the driver's functions past cuvmm's.
TEST(DeepBinding, OfALibraryKeepsTheMemoryThatItUses) {
  expect_same({"deep", library_of_programs("deep_user")});
}

TEST(HookedCalls, EndWhenTheirThreadIsCancelled) {
  expect_same({"cancel"});
}

}  // namespace
}  // namespace cuvmm::test
