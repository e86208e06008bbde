// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace cuvmm::test {

struct Finished {
  int status = -1;  // as a shell gives it: 128 + N after signal N
  std::string out;
  std::string err;
};

using Variables = std::map<std::string, std::string>;

// Runs a program to its end, with these variables added to this process's environment. A program
// that runs longer than a minute is killed and reported as 124.
Finished run_program(const std::vector<std::string>& command, const Variables& variables = {});

// Whether its standard output contains the text.
::testing::AssertionResult says(const Finished& finished, const std::string& text);

// Paths in the build folder: programs of tests/programs, examples, and cuvmm's own.
std::string program(const std::string& name);
std::string example(const std::string& name);
std::string cli();
std::string preload_library();
std::string stub_library();
std::string sim_directory();
std::string library_of_programs(const std::string& name);  // stand-ins for other people's libraries

// The variables that let a program find the simulated driver, alone or behind the preload library.
Variables natively();
Variables under_cuvmm(Variables more = {});

// The number of lines in a text.
std::size_t lines_in(const std::string& text);
// How often the text contains the words.
std::size_t lines_with(const std::string& text, const std::string& words);

// A private folder of the running test, empty at first.
std::string own_folder();

}  // namespace cuvmm::test
