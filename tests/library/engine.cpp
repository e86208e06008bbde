// SPDX-License-Identifier: Apache-2.0
// Which engine the library has, and what it reports about the devices.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "cuvmm/cuvmm.h"
#include "cuvmm/cuvmm.hpp"
#include "library/surroundings.hpp"

namespace cuvmm::test {
namespace {

// The engine that the test's runner declares: with the preload library in front or not.
cuvmm_engine_kind expected_engine() {
  return is_preloaded() ? CUVMM_ENGINE_PRELOADED : CUVMM_ENGINE_OWN;
}

TEST(LibraryEngine, IsThePreloadLibrarysIfPreloaded) {
  const auto info = engine_info();
  ASSERT_TRUE(info.ok()) << info.error().message();
  EXPECT_EQ(info->kind, expected_engine());
  EXPECT_EQ(info->version, version());
  EXPECT_GE(info->driver_version, 11000);
  EXPECT_GE(info->device_count, 1);
}

TEST(LibraryEngine, ReportsEachDevice) {
  const auto engine = engine_info();
  ASSERT_TRUE(engine.ok());
  for (int device = 0; device < engine->device_count; ++device) {
    const auto info = device_info(device);
    ASSERT_TRUE(info.ok()) << info.error().message();
    EXPECT_GT(info->granule, 0u);
    EXPECT_GE(info->memory, info->granule);
    EXPECT_LE(info->physical_in_use, info->memory);
  }
}

TEST(LibraryEngine, RefusesAMissingDeviceAndSaysSo) {
  cuvmm_device_info info;
  std::memset(&info, 0x5a, sizeof info);
  const cuvmm_device_info before = info;
  cuvmm_error error{};
  EXPECT_EQ(cuvmm_get_device_info(1000, &info, &error), CUVMM_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(error.status, CUVMM_ERROR_NOT_SUPPORTED);
  EXPECT_NE(std::string{error.message}.find("no such device"), std::string::npos) << error.message;
  EXPECT_NE(std::string{error.message}.find("1000 requested"), std::string::npos) << error.message;
  EXPECT_EQ(std::memcmp(&info, &before, sizeof info), 0) << "written although refused";
}

TEST(LibraryEngine, ToleratesMissingPointers) {
  cuvmm_engine_info info;
  EXPECT_EQ(cuvmm_get_engine_info(&info, nullptr), CUVMM_OK);
  EXPECT_EQ(cuvmm_get_engine_info(nullptr, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cuvmm_get_device_info(0, nullptr, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
}

TEST(LibraryEngine, NamesEveryStatus) {
  for (int status = CUVMM_OK; status <= CUVMM_ERROR_ALREADY_EXISTS; ++status) {
    EXPECT_STRNE(cuvmm_status_name(static_cast<cuvmm_status>(status)), "unknown status") << status;
  }
  EXPECT_STREQ(cuvmm_status_name(static_cast<cuvmm_status>(12345)), "unknown status");
  EXPECT_STREQ(name_of(ErrorKind::AlreadyMapped), "already mapped");
}

}  // namespace
}  // namespace cuvmm::test
