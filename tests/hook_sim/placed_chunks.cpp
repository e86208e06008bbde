// SPDX-License-Identifier: Apache-2.0
// Chunks that the program creates itself change places while its threads create, map and release
// others.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "hook_sim/on_primary_context.hpp"

namespace cuvmm::test {
namespace {

class PlacedByUseOfChunks : public OnPrimaryContext {
 protected:
  using Handle = CUmemGenericAllocationHandle;
  static constexpr std::size_t size = 32 * MiB;

  void SetUp() override {
    const char* const bound = std::getenv("VMM_LIMIT");
    const bool is_asked = std::getenv("VMM_SPILL") != nullptr && bound != nullptr;
    if (!is_asked || std::string{bound} != "256M") GTEST_SKIP() << "nothing is placed";
    ASSERT_NO_FATAL_FAILURE(OnPrimaryContext::SetUp());
  }
  void TearDown() override {
    if (context_ != nullptr) OnPrimaryContext::TearDown();
  }

  static void copy_word_from(CUdeviceptr address, std::uint32_t* word) {
    EXPECT_DONE(
        through_door<Call::cuMemcpyDtoH_v2>(static_cast<void*>(word), address, sizeof *word));
  }

  // One chunk, mapped in a reservation of its own and filled with a word.
  struct Mapped {
    explicit Mapped(std::size_t bytes, std::uint32_t filled_with)
        : length(bytes), word(filled_with) {
      const CUmemAllocationProp wanted{.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                       .win32HandleMetaData = nullptr,
                                       .allocFlags = {}};
      EXPECT_DONE(through_door<Call::cuMemCreate>(&chunk, length, &wanted, 0ull));
      EXPECT_DONE(through_door<Call::cuMemAddressReserve>(&address, length, std::size_t{0},
                                                          CUdeviceptr{0}, 0ull));
      map();
      EXPECT_DONE(through_door<Call::cuMemsetD32_v2>(address, word, length / 4));
      EXPECT_DONE(through_door<Call::cuCtxSynchronize>());
    }
    ~Mapped() {
      EXPECT_DONE(through_door<Call::cuMemUnmap>(address, length));
      EXPECT_DONE(through_door<Call::cuMemAddressFree>(address, length));
      EXPECT_DONE(through_door<Call::cuMemRelease>(chunk));
    }
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;

    void map() const {
      EXPECT_DONE(through_door<Call::cuMemMap>(address, length, std::size_t{0}, chunk, 0ull));
      const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                   CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      EXPECT_DONE(through_door<Call::cuMemSetAccess>(address, length, &access, std::size_t{1}));
    }
    void expect_intact() const {
      std::vector<std::uint32_t> words(length / 4);
      EXPECT_DONE(
          through_door<Call::cuMemcpyDtoH_v2>(static_cast<void*>(words.data()), address, length));
      for (const std::uint32_t one : words) {
        if (one != word) {
          ADD_FAILURE() << one << " instead of " << word;
          return;
        }
      }
    }
    bool is_far() const { return Engine::get()->serving()->program_chunks.is_far(chunk); }

    const std::size_t length;
    const std::uint32_t word;
    Handle chunk = 0;
    CUdeviceptr address = 0;
  };
};

TEST_F(PlacedByUseOfChunks, HotOnesComeInBesideOthersThatComeAndGo) {
  std::vector<std::unique_ptr<Mapped>> cold;
  for (std::uint32_t i = 1; i <= 7; ++i) cold.push_back(std::make_unique<Mapped>(size, i));
  Mapped unsteady{size, 100};
  std::vector<std::unique_ptr<Mapped>> hot;
  for (std::uint32_t i = 11; i <= 13; ++i) hot.push_back(std::make_unique<Mapped>(size, i));
  for (const auto& one : hot) ASSERT_TRUE(one->is_far());
  std::atomic<bool> is_over{false};
  std::thread comes_and_goes{[&] {
    EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
    for (std::uint32_t round = 0; !is_over; ++round) {
      const Mapped one{2 * MiB, round};
      one.expect_intact();
      EXPECT_DONE(through_door<Call::cuMemUnmap>(unsteady.address, unsteady.length));
      unsteady.map();
    }
  }};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{240};
  const auto are_any_far = [&] { return hot[0]->is_far() || hot[1]->is_far(); };
  while (are_any_far() && std::chrono::steady_clock::now() < until) {
    for (const auto& one : hot) {
      std::uint32_t word = 0;
      copy_word_from(one->address + 8, &word);
      EXPECT_EQ(word, one->word);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  is_over = true;
  comes_and_goes.join();
  EXPECT_FALSE(are_any_far());
  for (const auto& one : hot) one->expect_intact();
  for (const auto& one : cold) one->expect_intact();
  unsteady.expect_intact();
  EXPECT_LE(Engine::get()->serving()->memory.counters(0).native, 256 * MiB);
}

}  // namespace
}  // namespace cuvmm::test
