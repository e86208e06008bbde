// SPDX-License-Identifier: Apache-2.0
// What the host has available, as the files of a made-up system tell it.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/host_memory.hpp"
#include "support/refused_system_call.hpp"

namespace cuvmm::test {
namespace {

namespace fs = std::filesystem;

class HostMemory : public ::testing::Test {
 protected:
  HostMemory() : root_(fs::temp_directory_path() / ("cuvmm-host-" + std::to_string(::getpid()))) {
    given("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nMemFree: 1 kB\n");
  }
  ~HostMemory() override { fs::remove_all(root_); }
  void given(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path{root_ + path}.parent_path());
    std::ofstream{root_ + path} << text;
  }
  void given_group(const std::string& name, const std::string& most, Size used, Size cache = 0) {
    const std::string folder = "/sys/fs/cgroup" + name;
    given(folder + "/memory.max", most + "\n");
    given(folder + "/memory.current", std::to_string(used) + "\n");
    given(folder + "/memory.stat", "anon 1\ninactive_file_other 7\ninactive_file " +
                                       std::to_string(cache) + "\nactive_file 9\n");
  }
  void given_group_of_version_1(const std::string& name, Size most, Size used, Size cache = 0,
                                Size hierarchical = unlimited) {
    const std::string folder = "/sys/fs/cgroup/memory" + name;
    given(folder + "/memory.limit_in_bytes", std::to_string(most) + "\n");
    given(folder + "/memory.usage_in_bytes", std::to_string(used) + "\n");
    given(folder + "/memory.stat", "cache 5\ninactive_file 3\nhierarchical_memory_limit " +
                                       std::to_string(hierarchical) + "\ntotal_inactive_file " +
                                       std::to_string(cache) + "\n");
  }
  Size available() const { return available_host_memory(root_); }
  const std::string root_;
};

TEST_F(HostMemory, WithoutGroupsItIsWhatTheKernelSays) {
  EXPECT_EQ(available(), 8 * GiB);
  given("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(available(), 8 * GiB);
  given_group("", "max", 3 * GiB);
  EXPECT_EQ(available(), 8 * GiB);
}

// As in a program that has used up its descriptors.
TEST_F(HostMemory, WithoutFilesItIsWhatTheSystemCallSays) {
  fs::remove(root_ + "/proc/meminfo");
  EXPECT_GT(available(), 0u);
  EXPECT_LT(available(), total_host_memory());
}

TEST_F(HostMemory, IsLimitedByItsOwnGroup) {
  given("/proc/self/cgroup", "0::/user.slice/job.scope\n");
  given_group("/user.slice/job.scope", std::to_string(2 * GiB), 512 * MiB);
  EXPECT_EQ(available(), 1536 * MiB);
}

TEST_F(HostMemory, IsLimitedByTheGroupsAboveItsOwn) {
  given("/proc/self/cgroup", "0::/pod/container\n");
  given_group("/pod/container", std::to_string(4 * GiB), GiB);
  given_group("/pod", std::to_string(3 * GiB), 2 * GiB);
  EXPECT_EQ(available(), GiB);
  given_group("/pod", "max", 2 * GiB);
  EXPECT_EQ(available(), 3 * GiB);
}

// In a namespace of its own, the group is the top.
TEST_F(HostMemory, IsLimitedByTheTop) {
  given("/proc/self/cgroup", "0::/\n");
  given_group("", std::to_string(GiB), 256 * MiB);
  EXPECT_EQ(available(), 768 * MiB);
}

TEST_F(HostMemory, CacheThatTheKernelWouldReclaimIsAvailable) {
  given("/proc/self/cgroup", "0::/job\n");
  given_group("/job", std::to_string(2 * GiB), 2000 * MiB, 1800 * MiB);
  EXPECT_EQ(available(), 1848 * MiB);
  given_group("/job", std::to_string(2 * GiB), 100 * MiB, 200 * MiB);
  EXPECT_EQ(available(), 2 * GiB) << "the files are not read at one moment";
  given_group("/job", std::to_string(GiB), 2 * GiB);
  EXPECT_EQ(available(), 0u);
}

TEST_F(HostMemory, IsLimitedByGroupsOfVersion1) {
  given("/proc/self/cgroup", "5:cpu,cpuacct:/job\n4:hugetlb,memory:/user/job\n0::/elsewhere\n");
  given_group_of_version_1("/user/job", 4 * GiB, 3 * GiB, GiB);
  EXPECT_EQ(available(), 2 * GiB);
  given_group_of_version_1("/user", 3 * GiB, 2560 * MiB);
  EXPECT_EQ(available(), 512 * MiB);
  given_group_of_version_1("/user", 0x7ffffffffffff000, 2560 * MiB);
  given_group_of_version_1("/user/job", 0x7ffffffffffff000, 3 * GiB, GiB, 3 * GiB);
  EXPECT_EQ(available(), GiB);
}

// The group has the name that it has on the host, but the container sees only its own part.
TEST_F(HostMemory, IsLimitedByAGroupThatIsVisibleOnlyAtTheTop) {
  given("/proc/self/cgroup", "4:memory:/docker/4711\n");
  given_group_of_version_1("", GiB, 256 * MiB);
  EXPECT_EQ(available(), 768 * MiB);
}

TEST_F(HostMemory, IgnoresWhatItCannotRead) {
  given("/proc/self/cgroup", "nonsense\n0:\n0::relative\n4:memory:\n");
  given_group("", "many", GiB);
  EXPECT_EQ(available(), 8 * GiB);
}

TEST_F(HostMemory, InTotalIsKnownWhereTheSystemCallIsRefused) {
  Size total = 0;
  bool refused = false;
  std::thread filtered{[&] {
    refused = refuse_system_call(SYS_sysinfo);
    total = total_host_memory(root_);
  }};
  filtered.join();
  EXPECT_GT(total_host_memory(), available_host_memory());
  if (!refused) GTEST_SKIP() << "no filter can be set here";
  EXPECT_EQ(total, 16 * GiB);
}

}  // namespace
}  // namespace cuvmm::test
