// SPDX-License-Identifier: Apache-2.0
// Random changes to a mapping, with and without a failing driver, each compared with a model that
// knows only granules.
#include <algorithm>
#include <array>
#include <optional>
#include <random>

#include "support/faulty_driver.hpp"
#include "support/kernels.hpp"
#include "support/scale.hpp"
#include "vmm_world.hpp"

namespace cuvmm::test {
namespace {

constexpr Size granules = 24;
constexpr Size chunk_count = 14;
constexpr Size largest_chunk = 4;

// A chunk and its expected contents: the first word of each granule, if known.
struct Known {
  ChunkRef chunk;
  std::vector<std::optional<std::uint32_t>> words;
  Size size() const { return words.size(); }
};

// The expected state of one granule of addresses.
struct Cell {
  int known = -1;  // which chunk; -1: nothing
  Size part = 0;   // which granule of it
  AccessSet access;
};

using Cells = std::array<Cell, granules>;

class RandomChanges : public VmmTest {
 protected:
  void SetUp() override {
    VmmTest::SetUp();
    if (HasFatalFailure()) return;
    random_.seed(seed());
    faulty_.emplace(driver());
    world_.emplace(*faulty_, granules);
    for (Size i = 0; i < chunk_count; ++i) known_.push_back(fresh());
  }
  void TearDown() override {
    known_.clear();
    world_.reset();
    faulty_.reset();
    VmmTest::TearDown();
  }

  Size below(Size bound) { return random_() % bound; }
  AccessSet some_access() {
    const Size choice = below(6);
    return choice == 0 ? AccessSet::none()
                       : AccessSet::of(0, choice == 1 ? Access::Read : Access::ReadWrite);
  }
  Known fresh() {
    const Size size = 1 + below(largest_chunk);
    return {world_->chunk(size), std::vector<std::optional<std::uint32_t>>(size)};
  }

  bool is_mapped(int known) const {
    return std::any_of(cells_.begin(), cells_.end(),
                       [known](const Cell& cell) { return cell.known == known; });
  }
  bool is_free(Size first, Size count) const {
    return std::all_of(cells_.begin() + first, cells_.begin() + first + count,
                       [](const Cell& cell) { return cell.known < 0; });
  }
  bool is_covered(Size first, Size count) const {
    return std::none_of(cells_.begin() + first, cells_.begin() + first + count,
                        [](const Cell& cell) { return cell.known < 0; });
  }
  bool is_seam(Size at) const {
    return at == granules || cells_[at].known < 0 || cells_[at].part == 0;
  }
  bool cuts_a_chunk(Size first, Size count) const {
    return !is_seam(first) || !is_seam(first + count);
  }
  static void put(Cells& cells, Size at, int index, Size size, AccessSet access) {
    for (Size part = 0; part < size; ++part) cells[at + part] = {index, part, access};
  }

  // Performs the change, now and then with a failing driver. `after` is the expected state if it
  // succeeds, which it must if the model expects "ok" and the driver does not fail.
  void change(const char* what, const std::function<Result<void>()>& act,
              const std::string& expected, const Cells& after) {
    const bool fails = below(4) == 0;
    if (fails) {
      faulty_->fail_call(1 + below(12),
                         below(2) == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
    }
    const Result<void> result = act();
    const bool failed = faulty_->faults() != 0;
    faulty_->stop_failing();
    succeeded_ = result.ok();
    if (succeeded_) cells_ = after;
    if (!failed || expected != "ok") {
      EXPECT_EQ(outcome(result), expected) << what << (result.ok() ? "" : result.error().text());
    }
  }

  void change_something() {
    switch (below(8)) {
      case 0:
      case 1:
        return map_something();
      case 2:
        return unmap_a_stretch();
      case 3:
        return allow_a_stretch();
      case 4:
        return move_a_chunk();
      case 5:
      case 6:
        return write_a_word();
      default:
        return exchange_a_chunk();
    }
  }

  void map_something() {
    const int index = static_cast<int>(below(chunk_count));
    const Known& known = known_[static_cast<std::size_t>(index)];
    const Size at = below(granules + 1);
    const AccessSet access = some_access();
    Cells after = cells_;
    std::string expected = "ok";
    if (at + known.size() > granules) {
      expected = "invalid argument";
    } else if (!is_free(at, known.size())) {
      expected = "already mapped";
    } else {
      put(after, at, index, known.size(), access);
    }
    MapPlan plan;
    plan.map(world_->mapping, at * world_->granule, known.chunk, access);
    change(
        "map", [&] { return plan.commit(); }, expected, after);
  }

  void unmap_a_stretch() {
    const Size first = below(granules);
    const Size count = 1 + below(std::min<Size>(granules - first, 8));
    Cells after = cells_;
    std::string expected = "ok";
    if (is_free(first, count)) {
      expected = "not mapped";
    } else if (cuts_a_chunk(first, count)) {
      expected = "invalid argument";
    } else {
      std::fill_n(after.begin() + first, count, Cell{});
    }
    MapPlan plan;
    plan.unmap(world_->mapping, world_->stretch(first, count));
    change(
        "unmap", [&] { return plan.commit(); }, expected, after);
  }

  void allow_a_stretch() {
    const Size first = below(granules);
    const Size count = 1 + below(std::min<Size>(granules - first, 6));
    if (!is_covered(first, count) && cuts_a_chunk(first, count)) return;  // both outcomes are right
    const AccessSet access = some_access();
    Cells after = cells_;
    std::string expected = "ok";
    if (!is_covered(first, count)) {
      expected = "not mapped";
    } else if (cuts_a_chunk(first, count)) {
      expected = "invalid argument";
    } else {
      for (Size i = first; i < first + count; ++i) after[i].access = access;
    }
    MapPlan plan;
    plan.allow(world_->mapping, world_->stretch(first, count), access);
    change(
        "allow", [&] { return plan.commit(); }, expected, after);
  }

  void move_a_chunk() {
    const Size from = below(granules);
    const Size to = below(granules);
    if (cells_[from].known < 0 || cells_[from].part != 0) return;
    const int index = cells_[from].known;
    const Size size = known_[static_cast<std::size_t>(index)].size();
    if (to + size > granules) return;
    const AccessSet access = some_access();
    Cells after = cells_;
    std::fill_n(after.begin() + from, size, Cell{});
    const bool vacant = std::all_of(after.begin() + to, after.begin() + to + size,
                                    [](const Cell& cell) { return cell.known < 0; });
    put(after, to, index, size, access);
    MapPlan plan;
    plan.map(world_->mapping, to * world_->granule, known_[static_cast<std::size_t>(index)].chunk,
             access);
    plan.unmap(world_->mapping, from * world_->granule);
    change(
        "move", [&] { return plan.commit(); }, vacant ? "ok" : "already mapped",
        vacant ? after : cells_);
  }

  // Chunks that are not mapped, together as large as the stretch; empty if there are none.
  std::vector<int> unmapped_chunks_of(Size count) {
    std::vector<int> order(chunk_count);
    for (Size i = 0; i < chunk_count; ++i) order[i] = static_cast<int>(i);
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<int> chosen;
    for (const int index : order) {
      const Size size = known_[static_cast<std::size_t>(index)].size();
      if (size > count || is_mapped(index)) continue;
      chosen.push_back(index);
      count -= size;
    }
    return count == 0 ? chosen : std::vector<int>{};
  }

  void write_a_word() {
    const Size at = below(granules);
    if (cells_[at].access.of_device(0) != Access::ReadWrite) return;
    const auto word = static_cast<std::uint32_t>(random_());
    write_word(world_->address(at), word);
    word_at(cells_[at]) = word;
  }

  void exchange_a_chunk() {
    const Size index = below(chunk_count);
    if (is_mapped(static_cast<int>(index))) return;
    known_[index] = {};
    known_[index] = fresh();
    if (below(8) == 0) world_->store.trim(world_->here, below(8) * world_->granule);
  }

  std::optional<std::uint32_t>& word_at(const Cell& cell) {
    return known_[static_cast<std::size_t>(cell.known)].words[cell.part];
  }

  void compare() {
    world_->mapping.check();
    world_->store.check();
    for (Size i = 0; i < granules; ++i) {
      const Cell& cell = cells_[i];
      const MappedChunk* const mapped = world_->mapping.find(i * world_->granule);
      ASSERT_EQ(mapped != nullptr, cell.known >= 0) << "granule " << i;
      if (mapped == nullptr) continue;
      ASSERT_TRUE(mapped->chunk == known_[static_cast<std::size_t>(cell.known)].chunk);
      ASSERT_EQ(mapped->offset, (i - cell.part) * world_->granule);
      ASSERT_EQ(mapped->access, cell.access) << "granule " << i;
      if (cell.access.is_none() || !word_at(cell)) continue;
      ASSERT_EQ(read_word(world_->address(i)), *word_at(cell)) << "granule " << i;
    }
  }

  std::mt19937_64 random_;
  std::optional<FaultyDriver> faulty_;
  std::optional<VmmWorld> world_;
  std::vector<Known> known_;
  Cells cells_{};
  bool succeeded_ = false;
};

TEST_F(RandomChanges, MatchTheModel) {
  PRINT_SEED_ON_FAILURE();
  const std::uint64_t count = scaled(2000);
  for (std::uint64_t step = 0; step < count; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    change_something();
    ASSERT_NO_FATAL_FAILURE(compare());
    if (HasFailure()) return;
    if (step % 64 == 0) {
      ASSERT_NO_FATAL_FAILURE(expect_true(world_->mapping));
    }
  }
  expect_true(world_->mapping);
}

}  // namespace
}  // namespace cuvmm::test
