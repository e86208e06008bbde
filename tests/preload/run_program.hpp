// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace cuvmm::test {

struct Finished {
  int status = -1;  // as a shell has it: 128 + N after signal N
  std::string out;
  std::string err;
};

using Variables = std::map<std::string, std::string>;

// Runs a program to its end, with these variables beside those of this process. Killed, and
// reported as 124, where it takes longer than a minute.
Finished run_program(const std::vector<std::string>& command, const Variables& variables = {});

// On its standard output.
::testing::AssertionResult says(const Finished& finished, const std::string& text);

// Programs of tests/programs, those of examples, and our own, where the build has put them.
std::string program(const std::string& name);
std::string example(const std::string& name);
std::string cli();
std::string preload_library();
std::string sim_directory();
std::string library_of_programs(const std::string& name);  // what other people's libraries are

// What makes the simulated driver be found, alone or with the preload library in front.
Variables natively();
Variables under_cuvmm(Variables more = {});

// How many lines a text has.
std::size_t lines_in(const std::string& text);

// A folder of the running test's own, empty at first.
std::string own_folder();

}  // namespace cuvmm::test
