// SPDX-License-Identifier: Apache-2.0
// Every driver call of an elision fails, once and twice in a row: then the copy is run instead, the
// contents are right and nothing is left behind.
#include "resize/world.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

constexpr Size odd = 4 * block + 5 * KiB;  // so that an edge is copied
constexpr Size larger = 5 * block;

struct Fault {
  const char* call;
  int times;
};

std::string name_of_fault(const ::testing::TestParamInfo<Fault>& fault) {
  return std::string(fault.param.call) + (fault.param.times > 1 ? "Twice" : "Once");
}

class ElisionFaults : public ResizeTest, public ::testing::WithParamInterface<Fault> {
 protected:
  struct Held {
    std::uint64_t chunks = 0;
    std::uint64_t mapped = 0;
    bool operator==(const Held&) const = default;
  };
  static Held held() {
    Engine::get()->serving()->memory.make_room();
    cuvmm_sim_counters counters{};
    sim()->read_counters(0, &counters);
    return {counters.chunks, counters.mapped_bytes};
  }
  // The number-th call fails, and as many after it as the parameter says.
  static std::string faults(std::uint64_t number) {
    std::string text;
    for (int i = 0; i < GetParam().times; ++i) {
      if (i != 0) text += ",";
      text += GetParam().call;
      text += ":" + std::to_string(number + static_cast<std::uint64_t>(i)) +
              "=CUDA_ERROR_OUT_OF_MEMORY";
    }
    return text;
  }
};

TEST_P(ElisionFaults, LeadToACopy) {
  const char* const call = GetParam().call;
  EXPECT_DONE(free(given_filled(block, 1)));  // creates what is created only once
  // With one chunk that is covered in part, so that new memory is needed too.
  std::uint64_t worked = 0;
  for (std::uint64_t number = 1; number < 40; number += (sweep_step() + 2) / 3) {
    SCOPED_TRACE("call " + std::to_string(number) + " of " + call + " fails");
    const Held before = held();
    EXPECT_DONE(free(given_block(larger)));
    const CUdeviceptr a = given_filled(odd, 1);
    const CUdeviceptr b = given_put_off(a, odd, larger);
    const std::uint64_t calls = sim()->calls(call);
    const std::uint64_t elided_before = elided();
    ASSERT_EQ(sim()->set_faults(faults(number).c_str()), 0);
    CUresult freed = free(a);
    sim()->set_faults(nullptr);
    const bool reached = sim()->calls(call) >= calls + number;
    if (freed != CUDA_SUCCESS) {
      // The program is told, and nothing is lost: it still holds A and may try again.
      expect_filled(a, odd, 1);
      freed = free(a);
    }
    EXPECT_DONE(freed);
    EXPECT_FALSE(is_pending());
    expect_filled(b, odd, 1);
    fill(b, larger, 2);
    expect_filled(b, larger, 2);
    EXPECT_DONE(free(b));
    expect_true_books();
    EXPECT_EQ(held(), before);
    if (!reached) {
      EXPECT_EQ(elided(), elided_before + 1) << why_run();
      worked = number;
      break;
    }
  }
  EXPECT_GT(worked, 0U) << "no scenario passed untouched";
}

INSTANTIATE_TEST_SUITE_P(
    Calls, ElisionFaults,
    ::testing::Values(Fault{"cuMemMap", 1}, Fault{"cuMemMap", 2}, Fault{"cuMemUnmap", 1},
                      Fault{"cuMemUnmap", 2}, Fault{"cuMemSetAccess", 1},
                      Fault{"cuMemSetAccess", 2}, Fault{"cuMemCreate", 1}, Fault{"cuMemCreate", 2},
                      Fault{"cuMemcpyDtoDAsync", 1}, Fault{"cuMemcpyDtoDAsync", 2},
                      Fault{"cuStreamSynchronize", 1}, Fault{"cuStreamSynchronize", 2},
                      Fault{"cuMemRelease", 1}, Fault{"cuCtxSynchronize", 1},
                      Fault{"cuStreamQuery", 1}, Fault{"cuCtxGetCurrent", 1}),
    name_of_fault);

}  // namespace
}  // namespace cuvmm::test
