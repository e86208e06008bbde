// SPDX-License-Identifier: Apache-2.0
#include "slurm/leftovers.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace cuvmm::slurm {
namespace {

namespace fs = std::filesystem;

class Leftovers : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "leftovers-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    struct stat facts {};
    ASSERT_EQ(::stat("/proc/self/ns/pid", &facts), 0);
    here_ = std::to_string(facts.st_ino);
    dead_ = ::fork();
    if (dead_ == 0) ::_exit(0);
    ::waitpid(dead_, nullptr, 0);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string make(const std::string& name) {
    std::ofstream{folder_ / name} << "x";
    return folder_ / name;
  }
  std::string of(const char* kind, pid_t process) {
    return make(std::string{kind} + "-" + std::to_string(process) + "-" + here_);
  }

  fs::path folder_;
  std::string here_;
  pid_t dead_ = 0;
};

TEST_F(Leftovers, OfDeadProcessesAreRemovedWithTheEmptyFolder) {
  of("figures", dead_);
  of("control", dead_);
  remove_leftovers(folder_);
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(Leftovers, OfLiveProcessesAndOtherUsersStay) {
  const std::string dead = of("figures", dead_);
  const std::string stays[] = {of("figures", ::getpid()),
                               make("figures-" + std::to_string(dead_) + "-1"),
                               make("figures-" + std::to_string(dead_)),
                               make("figures--5-" + here_),
                               make("cuvmmd.sock"),
                               make("figures-x-" + here_)};
  remove_leftovers(folder_);
  EXPECT_FALSE(fs::exists(dead));
  for (const std::string& path : stays) EXPECT_TRUE(fs::exists(path)) << path;
}

TEST_F(Leftovers, AFolderThatIsALinkIsLeftAlone) {
  const std::string dead = of("figures", dead_);
  const fs::path link = folder_.string() + "-link";
  fs::create_symlink(folder_, link);
  remove_leftovers(link);
  EXPECT_TRUE(fs::exists(dead));
  fs::remove(link);
  remove_leftovers("/nowhere/cuvmm-0");
}

}  // namespace
}  // namespace cuvmm::slurm
