// SPDX-License-Identifier: Apache-2.0
// Whether a device is open that reads memory by address. A folder stands in for the system's root.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "alloc/peer_dma_detection.hpp"

namespace cuvmm::test {
namespace {

class DevicesByAddress : public testing::Test {
 protected:
  DevicesByAddress() {
    std::string name = (std::filesystem::temp_directory_path() / "cuvmm-root-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
    root_ = std::filesystem::canonical(root_).string();
    make("/dev/null");
  }
  ~DevicesByAddress() override {
    if (open_ >= 0) ::close(open_);
    std::filesystem::remove_all(root_);
  }

  void make(const std::string& file) const {
    const std::filesystem::path path = root_ + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream{path} << "x";
  }
  void open(const std::string& file) {
    make(file);
    open_ = ::open((root_ + file).c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(open_, 0);
  }
  void close() { ::close(std::exchange(open_, -1)); }

  std::string root_;
  int open_ = -1;
};

TEST_F(DevicesByAddress, AreSeenWhileTheyAreOpen) {
  for (const char* device :
       {"/dev/infiniband/uverbs0", "/dev/nvidia-fs0", "/dev/gdrdrv", "/dev/cxi0", "/dev/hfi1_0"}) {
    open(device);
    EXPECT_TRUE(holds_device_by_address(root_)) << device;
    close();
    EXPECT_FALSE(holds_device_by_address(root_)) << device;
  }
}

TEST_F(DevicesByAddress, ExcludeOtherDeviceFiles) {
  make("/dev/nvidia-fs0");
  open("/dev/infiniband/rdma_cm");
  EXPECT_FALSE(holds_device_by_address(root_));
}

// The device found last is checked first, whatever has become of its descriptor number.
TEST_F(DevicesByAddress, AreStillFoundAfterADescriptorIsReused) {
  open("/dev/infiniband/uverbs0");
  EXPECT_TRUE(holds_device_by_address(root_));
  const int first = open_;
  const int second = ::dup(first);
  ::close(first);
  ASSERT_EQ(::open("/dev/null", O_RDONLY | O_CLOEXEC), first);
  EXPECT_TRUE(holds_device_by_address(root_)) << "another number leads to it";
  ::close(first);
  open_ = second;
  close();
  EXPECT_FALSE(holds_device_by_address(root_));
}

TEST_F(DevicesByAddress, AreRememberedUntilTheyAreClosed) {
  open("/dev/infiniband/uverbs0");
  EXPECT_TRUE(holds_device_by_address(root_));
  EXPECT_TRUE(still_holds_device_by_address(root_));
  close();
  EXPECT_FALSE(still_holds_device_by_address(root_));
}

// As after chroot(): devices opened before are still open.
TEST_F(DevicesByAddress, AreFoundWithoutADeviceFolder) {
  open("/dev/infiniband/uverbs3");
  std::filesystem::remove_all(root_ + "/dev");
  EXPECT_TRUE(holds_device_by_address(root_));
  close();
  EXPECT_FALSE(holds_device_by_address(root_));
}

}  // namespace
}  // namespace cuvmm::test
