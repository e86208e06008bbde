// SPDX-License-Identifier: Apache-2.0
// Which units a container gets, and the environment it is given.
#include <gtest/gtest.h>

#include <algorithm>

#include "kubernetes/container_setup.hpp"
#include "kubernetes/units.hpp"

namespace cuvmm::kubernetes {
namespace {

using Ids = std::vector<std::string>;

Ids units_on(const Units& units, std::size_t card, std::uint32_t first, std::uint32_t count) {
  Ids ids;
  for (std::uint32_t i = 0; i < count; ++i) ids.push_back(units.id(card, first + i));
  return ids;
}
Ids together(Ids all, const Ids& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

const Units two_cards{
    {{.uuid = "GPU-a", .index = 0, .units = 8}, {.uuid = "GPU-b", .index = 1, .units = 8}}};

TEST(UnitsOfACard, AreItsWholeGibibytesBeyondTheReserve) {
  EXPECT_EQ(units_of(80 * GiB, 0), 80u);
  EXPECT_EQ(units_of(80 * GiB - 1, 0), 79u);
  EXPECT_EQ(units_of(80 * GiB, GiB), 79u);
  EXPECT_EQ(units_of(GiB, 2 * GiB), 0u);
}

TEST(UnitsOfACard, HaveNamesThatTheKubeletAccepts) {
  const Units units{{{.uuid = "GPU-fef8089b-4820-abfc-e83e-94318197576e", .units = 1000}}};
  EXPECT_EQ(units.count(), 1000u);
  EXPECT_LE(units.id(0, 999).size(), 63u);
  EXPECT_NE(units.id(0, 1), units.id(0, 10));
}

TEST(PreferredUnits, AreOfTheCardThatTheyFillMost) {
  const Ids available = together(units_on(two_cards, 0, 0, 8), units_on(two_cards, 1, 3, 5));
  const UnitChoice choice = two_cards.prefer(available, {}, 4);
  ASSERT_TRUE(choice.ok()) << choice.refusal;
  EXPECT_EQ(choice.card, 1u);
  EXPECT_EQ(choice.ids, units_on(two_cards, 1, 3, 4));
  EXPECT_EQ(two_cards.prefer(available, {}, 6).card, 0u) << "only there they fit";
}

TEST(PreferredUnits, JoinThoseThatAreRequired) {
  const Ids available = together(units_on(two_cards, 0, 0, 8), units_on(two_cards, 1, 0, 8));
  const Ids required = {two_cards.id(1, 5)};
  const UnitChoice choice = two_cards.prefer(available, required, 3);
  ASSERT_TRUE(choice.ok()) << choice.refusal;
  EXPECT_EQ(choice.card, 1u);
  EXPECT_EQ(choice.ids.size(), 3u);
  EXPECT_TRUE(std::ranges::count(choice.ids, required.front()) == 1);
  EXPECT_FALSE(two_cards.prefer(available, units_on(two_cards, 1, 0, 3), 2).ok());
}

TEST(PreferredUnits, AreNeverSpreadOverCards) {
  const Ids available = together(units_on(two_cards, 0, 0, 3), units_on(two_cards, 1, 0, 4));
  const UnitChoice choice = two_cards.prefer(available, {}, 6);
  EXPECT_FALSE(choice.ok());
  EXPECT_NE(choice.refusal.find("no card has 6 units free: the most free on one is 4"),
            std::string::npos)
      << choice.refusal;
  EXPECT_FALSE(two_cards.prefer(available, {two_cards.id(0, 0), two_cards.id(1, 0)}, 2).ok());
  EXPECT_FALSE(two_cards.prefer(available, {}, 0).ok());
  EXPECT_FALSE(two_cards.prefer(available, {}, -1).ok());
  EXPECT_FALSE(two_cards.prefer({"GPU-c-00000"}, {}, 1).ok());
}

TEST(PreferredUnits, AreNeverOfACardThatDoesNotAnswer) {
  Units units = two_cards;
  EXPECT_TRUE(units.set_health(0, false));
  EXPECT_FALSE(units.set_health(0, false)) << "no news";
  const Ids available = together(units_on(units, 0, 0, 4), units_on(units, 1, 0, 8));
  EXPECT_EQ(units.prefer(available, {}, 4).card, 1u);
  EXPECT_FALSE(units.check(units_on(units, 0, 0, 2)).ok());
}

TEST(AllocatedUnits, AreUniqueUnitsOfOneCardOfThisNode) {
  EXPECT_TRUE(two_cards.check(units_on(two_cards, 1, 2, 4)).ok());
  EXPECT_FALSE(two_cards.check({}).ok());
  EXPECT_FALSE(two_cards.check({"GPU-c-00000"}).ok());
  EXPECT_FALSE(two_cards.check({two_cards.id(0, 1), two_cards.id(0, 1)}).ok());
  const UnitChoice spread = two_cards.check({two_cards.id(0, 1), two_cards.id(1, 1)});
  EXPECT_NE(spread.refusal.find("2 units are spread over 2 cards"), std::string::npos);
}

TEST(ContainerSetup, LimitsTheContainerToItsUnitsAndShowsItItsCard) {
  const Card card{.uuid = "GPU-a", .index = 0, .units = 8};
  const auto setup = set_up_container(
      card, 5, {.libraries = "/var/lib/cuvmm", .node_socket = "/run/cuvmm/cuvmmd.sock"});
  EXPECT_EQ(setup.environment.at("VMM_LIMIT"), "5G");
  EXPECT_EQ(setup.environment.at("VMM_NODE"), "auto");
  EXPECT_EQ(setup.environment.at("NVIDIA_VISIBLE_DEVICES"), "GPU-a");
  ASSERT_EQ(setup.mounts.size(), 2u);
  EXPECT_EQ(setup.mounts[0].host, "/var/lib/cuvmm");
  EXPECT_TRUE(setup.mounts[0].is_read_only);
  EXPECT_EQ(setup.environment.at("LD_PRELOAD"), setup.mounts[0].inside + "/libcuvmm_stub.so");
  EXPECT_EQ(setup.mounts[1].inside, "/run/cuvmm");
}

TEST(ContainerSetup, NamesTheCardForCdiAndRequiresTheServiceWhereAsked) {
  const Card card{.uuid = "GPU-a", .index = 0, .units = 8};
  const auto setup = set_up_container(card, 1,
                                      {.libraries = "/x",
                                       .node_socket = "/run/cuvmm/cuvmmd.sock",
                                       .node_is_required = true,
                                       .exposure = CardExposure::Cdi});
  EXPECT_EQ(setup.cdi_devices, Ids{"nvidia.com/gpu=GPU-a"});
  EXPECT_EQ(setup.environment.at("VMM_NODE"), "require");
  EXPECT_FALSE(setup.environment.contains("NVIDIA_VISIBLE_DEVICES"));
  const auto alone = set_up_container(card, 1, {.libraries = "/x"});
  EXPECT_EQ(alone.environment.at("VMM_NODE"), "off");
  EXPECT_EQ(alone.mounts.size(), 1u);
}

}  // namespace
}  // namespace cuvmm::kubernetes
