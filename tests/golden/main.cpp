// SPDX-License-Identifier: Apache-2.0
// With --update, the checked-in sequences of driver calls are written anew.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "golden/sequence.hpp"

namespace cuvmm::test {

bool updates_sequences = false;

void expect_sequence(const std::string& name, const std::string& found) {
  const std::string path =
      std::string{CUVMM_SOURCE_DIR} + "/tests/golden/sequences/" + name + ".txt";
  if (updates_sequences) {
    ASSERT_TRUE(std::ofstream{path} << found) << path;
    return;
  }
  std::ifstream file{path};
  ASSERT_TRUE(file) << "cannot read " << path << "; --update writes it";
  std::istringstream lines{found};
  std::string line;
  std::string expected;
  for (int number = 1; std::getline(file, expected); ++number) {
    if (!std::getline(lines, line)) line = "nothing more";
    ASSERT_EQ(line, expected)
        << "The driver calls differ from line " << number << " of " << path
        << " on. If that is intended, write it anew with --update, and list the difference in the "
           "commit.";
  }
  EXPECT_FALSE(std::getline(lines, line)) << "more than in " << path << ": " << line;
}

}  // namespace cuvmm::test

int main(int argc, char** argv) {
  setenv("VMM_SIM_ORDER", "eager", 1);
  ::testing::InitGoogleTest(&argc, argv);
  cuvmm::test::updates_sequences = argc > 1 && std::strcmp(argv[1], "--update") == 0;
  return RUN_ALL_TESTS();
}
