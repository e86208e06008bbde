// SPDX-License-Identifier: Apache-2.0
// Clients of the scheduler: they exist with the preload library in front, otherwise not.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "cuvmm/cuvmm.hpp"
#include "library/surroundings.hpp"

namespace cuvmm::test {
namespace {

TEST(LibraryClients, NeedThePreloadLibrary) {
  if (is_preloaded()) GTEST_SKIP() << "it is there";
  const auto client = Client::create("client");
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.error().kind(), ErrorKind::NotSupported);
  EXPECT_EQ(set_policy(Policy::Fair).error().kind(), ErrorKind::NotSupported);
}

TEST(LibraryClients, BeginAreBoundAndEnd) {
  if (!is_preloaded()) GTEST_SKIP() << "needs the preload library";
  ASSERT_TRUE(set_policy(Policy::Priority).ok());
  cuvmm_client number = 0;
  {
    auto client = Client::create("client", 5, 2);
    ASSERT_TRUE(client.ok()) << client.error().message();
    number = client->number();
    EXPECT_NE(number, 0u);
    EXPECT_TRUE(client->bind().ok());
    EXPECT_TRUE(client->bind_others().ok());
    const auto figures = client->figures();
    ASSERT_TRUE(figures.ok());
    EXPECT_EQ(figures->operations, 0u);
    EXPECT_TRUE(Client::unbind().ok());
  }
  EXPECT_EQ(cuvmm_client_bind(number, nullptr), CUVMM_ERROR_NOT_FOUND);
  EXPECT_TRUE(set_policy(Policy::Off).ok());
}

TEST(LibraryClients, RefuseInvalidArguments) {
  if (!is_preloaded()) GTEST_SKIP() << "needs the preload library";
  cuvmm_client client = 77;
  EXPECT_EQ(cuvmm_client_create("x", 101, 1, &client, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cuvmm_client_create("x", 0, 0, &client, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cuvmm_client_create(nullptr, 0, 1, &client, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cuvmm_client_bind(0, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cuvmm_set_policy(17, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(client, 77u);
  cuvmm_client_figures figures;
  std::memset(&figures, 0x5a, sizeof figures);
  EXPECT_EQ(cuvmm_client_get_figures(9999, &figures, nullptr), CUVMM_ERROR_NOT_FOUND);
  EXPECT_EQ(figures.operations, 0x5a5a5a5a5a5a5a5aull);
}

}  // namespace
}  // namespace cuvmm::test
