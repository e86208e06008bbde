// SPDX-License-Identifier: Apache-2.0
// Which devices a program sees. The devices are named by UUID, since their numbers mean something
// else to a child if this process does not see all of them itself.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "support/child.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

using Uuid = std::array<char, 16>;

Uuid uuid_of(int ordinal) {
  CUuuid uuid{};
  EXPECT_CUDA(driver().cuDeviceGetUuid(&uuid, ordinal));
  Uuid bytes{};
  std::memcpy(bytes.data(), uuid.bytes, bytes.size());
  return bytes;
}

std::string name_of(const Uuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::array<char, 3> two{};
    std::snprintf(two.data(), two.size(), "%02x", static_cast<unsigned char>(uuid[i]));
    text += two.data();
  }
  return text;
}

// Sends what the driver's start returned, how many devices it sees, and the UUID of each.
CHILD_ROLE(tells_which_devices_it_sees) {
  const CUresult started = driver().cuInit(0);
  link.send(started);
  int count = 0;
  if (started == CUDA_SUCCESS) {
    EXPECT_CUDA(driver().cuDeviceGetCount(&count));
  }
  link.send(count);
  for (int ordinal = 0; ordinal < count; ++ordinal) link.send(uuid_of(ordinal));
}

class VisibleDevices : public DriverContract {
 protected:
  struct Seen {
    CUresult started;
    std::vector<Uuid> devices;
  };
  static Seen child_with(const std::string& wanted) {
    Child child{"tells_which_devices_it_sees", {}, {"CUDA_VISIBLE_DEVICES=" + wanted}};
    Seen seen{child.link().receive<CUresult>(), {}};
    const int count = child.link().receive<int>();
    for (int i = 0; i < count; ++i) seen.devices.push_back(child.link().receive<Uuid>());
    EXPECT_EQ(child.wait(), 0);
    return seen;
  }
  static std::vector<Uuid> seen_with(const std::string& wanted) {
    const Seen seen = child_with(wanted);
    EXPECT_CUDA(seen.started);
    return seen.devices;
  }
  static std::vector<Uuid> all() {
    std::vector<Uuid> all;
    for (int ordinal = 0; ordinal < device_count(); ++ordinal) all.push_back(uuid_of(ordinal));
    return all;
  }
};

TEST_F(VisibleDevices, AreThoseNamedInTheirOrder) {
  std::vector<Uuid> wanted = all();
  std::reverse(wanted.begin(), wanted.end());
  std::string names;
  for (const Uuid& uuid : wanted) names += (names.empty() ? "" : ",") + name_of(uuid);
  EXPECT_EQ(seen_with(names), wanted);
}

TEST_F(VisibleDevices, MayBeOnlyOne) {
  const Uuid last = all().back();
  EXPECT_EQ(seen_with(name_of(last)), std::vector{last});
}

TEST_F(VisibleDevices, EndBeforeANameThatFitsNone) {
  const Uuid first = all().front();
  const std::string unknown = "GPU-ffffffff-0000-0000-0000-000000000000";
  EXPECT_EQ(seen_with(name_of(first) + "," + unknown + "," + name_of(all().back())),
            std::vector{first});
}

// Whether a device's number here is its number on the machine, from which a child counts.
bool has_numbers_of_the_machine() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr || std::string_view{"0,1,2,3,4,5,6,7"}.starts_with(visible);
}

TEST_F(VisibleDevices, MayBeNamedByNumber) {
  if (!has_numbers_of_the_machine()) GTEST_SKIP() << "sees only some devices of the machine";
  const Uuid first = uuid_of(0);
  EXPECT_EQ(seen_with("0"), std::vector{first});
  EXPECT_EQ(seen_with(" 0 ,-1,0"), std::vector{first}) << "the list ends before what is no number";
  EXPECT_EQ(seen_with("0,4096,0"), std::vector{first}) << "or is the number of none";
  EXPECT_EQ(seen_with("0,none,0"), std::vector{first});
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  EXPECT_EQ(seen_with("1,0"), (std::vector{uuid_of(1), first}));
}

TEST_F(VisibleDevices, AreNoneIfNoneIsNamed) {
  EXPECT_ANSWER(CUDA_ERROR_NO_DEVICE, child_with("").started);
  EXPECT_ANSWER(CUDA_ERROR_NO_DEVICE, child_with("-1").started);
}

TEST_F(VisibleDevices, AreInvalidIfOneIsNamedTwice) {
  const std::string name = name_of(all().front());
  EXPECT_ANSWER(CUDA_ERROR_INVALID_DEVICE, child_with(name + "," + name).started);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_DEVICE, child_with("0,0").started);
}

}  // namespace
}  // namespace cuvmm::test
