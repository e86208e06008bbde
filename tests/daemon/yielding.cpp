// SPDX-License-Identifier: Apache-2.0
// How clients of low priority learn, without the service, that one above them has work.
#include "engine/yielding.hpp"

#include <bit>
#include <cerrno>
#include <memory>
#include <vector>

#include "daemon/time_client.hpp"

namespace cuvmm::test {
namespace {

TEST(Yielding, LastsForAShortTimeOfEachGrant) {
  Yielding yielding;
  const std::uint64_t longest = Yielding::longest_ns;
  EXPECT_TRUE(yielding.must_wait(6, 1'000));
  EXPECT_TRUE(yielding.must_wait(6, 1'000 + longest - 1));
  EXPECT_FALSE(yielding.must_wait(6, 1'000 + longest));
  EXPECT_FALSE(yielding.must_wait(6, 5 * longest)) << "however often the other changes its word";
  EXPECT_TRUE(yielding.must_wait(10, 5 * longest)) << "the next grant";
}

class BoardsOfOthers : public NodeService {
 protected:
  // Both have competed, and the one below holds the device.
  static void let_hold(TimeClient& below, TimeClient& above) {
    above.want(true);
    below.want(true);
    EXPECT_TRUE(comes_true([&] {
      below.report_drained();
      return below.grant() == TimeGrant::None;
    }));
    above.want(false);
    EXPECT_TRUE(comes_true([&] { return below.grant() == TimeGrant::Held; }));
  }
};

TEST_F(BoardsOfOthers, AreSentToThoseBelowForReading) {
  start({"--time", "priority"});
  TimeClient below{*this, "below"};
  below.raw().say(node::YieldsToForeground{});
  {
    TimeClient above{*this, "above", 100, 5};
    let_hold(below, above);
    const auto said = below.raw().hear<node::ForegroundBoard>();
    ASSERT_TRUE(said);
    EXPECT_EQ(below.words().yields_to.load(), 1U << said->slot);
    EXPECT_EQ(above.words().yields_to.load(), 0u);

    const int file = below.raw().descriptor().number();
    EXPECT_EQ(
        ::mmap(nullptr, sizeof(node::GrantBoard), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0),
        MAP_FAILED);
    EXPECT_EQ(errno, EACCES);
    void* const mapped = ::mmap(nullptr, sizeof(node::GrantBoard), PROT_READ, MAP_SHARED, file, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    const auto* const seen = static_cast<const node::GrantBoard*>(mapped);
    const auto index = &below.words() - below.board().devices.data();
    const node::GrantWords& words = seen->devices[static_cast<std::size_t>(index)];
    EXPECT_EQ(words.wants.load(), 0u);
    above.words().wants.store(1);  // without a message
    EXPECT_EQ(words.wants.load(), 1u);
    above.words().wants.store(0);
    ::munmap(mapped, sizeof(node::GrantBoard));
  }
  EXPECT_TRUE(comes_true([&] { return below.words().yields_to.load() == 0; }))
      << "the one above has left";
}

TEST_F(BoardsOfOthers, AreNotSentToClientsThatDoNotKnowThem) {
  start({"--time", "priority"});
  TimeClient below{*this, "below"};
  TimeClient above{*this, "above", 100, 5};
  let_hold(below, above);
  EXPECT_EQ(below.words().yields_to.load(), 0u);
  EXPECT_FALSE(below.raw().hear<node::ForegroundBoard>(100));
}

// As many as there are slots; the others' grants pass through the service as ever.
TEST_F(BoardsOfOthers, AreSentWhileThereAreSlots) {
  start({"--time", "priority"});
  TimeClient below{*this, "below"};
  below.raw().say(node::YieldsToForeground{});
  std::vector<std::unique_ptr<TimeClient>> above;
  for (std::uint32_t i = 0; i < node::GrantBoard::most_foregrounds + 2; ++i) {
    above.push_back(std::make_unique<TimeClient>(*this, "above", 100, 5));
  }
  let_hold(below, *above.front());
  EXPECT_EQ(below.words().yields_to.load(), (1U << node::GrantBoard::most_foregrounds) - 1);
  above.pop_back();
  above.pop_back();
  above.erase(above.begin() + 1);
  EXPECT_TRUE(comes_true([&] {
    return std::popcount(below.words().yields_to.load()) + 1 ==
           static_cast<int>(node::GrantBoard::most_foregrounds);
  }));
}

}  // namespace
}  // namespace cuvmm::test
