// SPDX-License-Identifier: Apache-2.0
// PTX beyond arithmetic: each kind of memory, branches, calls, barriers, and exchanges between the
// lanes of a warp.
#include <algorithm>
#include <bit>
#include <functional>

#include "ptx_programs.hpp"
#include "support/child.hpp"

namespace cuvmm::test {
namespace {

class PtxControl : public DriverContract {};

std::vector<PtxOperands> counted(std::size_t count) {
  std::vector<PtxOperands> operands;
  for (std::size_t i = 0; i < count; ++i) operands.push_back({i, i * 7 % 13, 100 + i});
  return operands;
}

void expect_values(const PtxLines& lines, std::size_t count,
                   const std::function<std::uint64_t(std::uint64_t)>& expected) {
  const auto found = run_ptx(lines, counted(count));
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_EQ(found[i], expected(i)) << "thread " << i << " of\n" << lines.lines;
}

TEST_F(PtxControl, EachLaneHasItsOwnLoopCount) {
  expect_values({.operand_type = "u32", .result_type = "u32", .lines = R"(
    mov.u32 %d, 0;
    mov.u32 %x, %b;
  $again:
    setp.eq.u32 %p, %x, 0;
    @%p bra $end;
    add.u32 %d, %d, %x;
    sub.u32 %x, %x, 1;
    bra.uni $again;
  $end:)"},
                300, [](std::uint64_t i) {
                  const std::uint64_t b = i * 7 % 13;
                  return b * (b + 1) / 2;
                });
}

TEST_F(PtxControl, AnIndirectBranchUsesItsTable) {
  expect_values({.operand_type = "u32", .result_type = "u32", .lines = R"(
    and.b32 %x, %a, 3;
  $places: .branchtargets $zero, $one, $two, $one;
    brx.idx %x, $places;
  $zero: mov.u32 %d, 10; bra $end;
  $one: mov.u32 %d, 11; bra $end;
  $two: mov.u32 %d, 12;
  $end:)"},
                100, [](std::uint64_t i) { return i % 4 == 0 ? 10 : (i % 4 == 2 ? 12 : 11); });
}

TEST_F(PtxControl, AFunctionIsCalledByLanesThatDiverge) {
  expect_values({.operand_type = "u32",
                 .result_type = "u32",
                 .lines = R"(
    mov.u32 %d, 1;
    setp.gt.u32 %p, %b, 5;
    @!%p bra $end;
    {
      .param .b32 argument;
      .param .b32 result;
      st.param.b32 [argument], %b;
      call.uni (result), square_plus_one, (argument);
      ld.param.b32 %d, [result];
    }
  $end:)",
                 .module_text = R"(
.func (.param .b32 out) square_plus_one(.param .b32 in)
{
  .reg .b32 %v;
  ld.param.u32 %v, [in];
  mad.lo.u32 %v, %v, %v, 1;
  st.param.b32 [out], %v;
  ret;
}
)"},
                200, [](std::uint64_t i) {
                  const std::uint64_t b = i * 7 % 13;
                  return b > 5 ? b * b + 1 : 1;
                });
}

TEST_F(PtxControl, EachThreadHasLocalMemoryAlsoByGenericAddresses) {
  expect_values({.operand_type = "u32",
                 .result_type = "u32",
                 .lines = R"(
    st.local.u32 [place+4], %c;
    mov.u64 %w, place;
    cvta.local.u64 %w, %w;
    isspacep.local %p, %w;
    ld.u32 %d, [%w+4];
    @!%p mov.u32 %d, 0;)",
                 .declarations = ".local .align 4 .b8 place[16];\n"},
                200, [](std::uint64_t i) { return 100 + i; });
}

TEST_F(PtxControl, ABlocksThreadsShareMemoryBetweenBarriers) {
  const PtxLines lines{.operand_type = "u32",
                       .result_type = "u32",
                       .lines = R"(
    mov.u32 %x, %tid.x;
    mul.lo.u32 %x, %x, 4;
    mov.u32 %y, box;
    add.u32 %y, %y, %x;
    st.shared.u32 [%y], %a;
    bar.sync 0;
    mov.u32 %x, %tid.x;
    xor.b32 %x, %x, 127;
    mul.wide.u32 %w, %x, 4;
    mov.u64 %s, box;
    cvta.shared.u64 %s, %s;
    add.u64 %s, %s, %w;
    ld.u32 %d, [%s];)",
                       .declarations = ".shared .align 4 .b8 box[512];\n.reg .b64 %s;\n"};
  expect_values(lines, 1280, [](std::uint64_t i) { return i / 128 * 128 + ((i % 128) ^ 127); });
}

TEST_F(PtxControl, SharedMemoryIsAsLargeAsTheLaunchSays) {
  expect_values({.operand_type = "u32",
                 .result_type = "u32",
                 .lines = R"(
    mov.u32 %x, %tid.x;
    shl.b32 %x, %x, 2;
    mov.u32 %y, room;
    add.u32 %y, %y, %x;
    st.shared.u32 [%y], %c;
    bar.sync 0;
    ld.shared.u32 %d, [room+508];)",
                 .module_text = ".extern .shared .align 16 .b8 room[];\n",
                 .shared_bytes = 512},
                128, [](std::uint64_t) { return 227; });
}

TEST_F(PtxControl, ABarrierCountsAndCombinesPredicates) {
  expect_values({.operand_type = "u32", .result_type = "u32", .lines = R"(
    setp.gt.u32 %p, %b, 5;
    bar.red.popc.u32 %d, 0, %p;)"},
                128, [](std::uint64_t) {
                  std::uint64_t count = 0;
                  for (std::uint64_t i = 0; i < 128; ++i) count += i * 7 % 13 > 5 ? 1 : 0;
                  return count;
                });
  expect_values({.operand_type = "u32", .result_type = "u32", .lines = R"(
    setp.eq.u32 %p, %a, 77;
    bar.red.or.pred %q, 0, %p;
    bar.red.and.pred %p, 0, %p;
    selp.u32 %d, 1, 0, %q;
    selp.u32 %x, 2, 0, %p;
    or.b32 %d, %d, %x;)"},
                128, [](std::uint64_t) { return 1; });
}

TEST_F(PtxControl, ThreadsThatHaveEndedHoldNoBarrierUp) {
  expect_values({.operand_type = "u32", .result_type = "u32", .lines = R"(
    mov.u32 %d, 5;
    st.global.u32 [%j0], %d;
    setp.ge.u32 %p, %t, 40;
    @%p exit;
    bar.sync 0;
    mov.u32 %d, 6;)"},
                128, [](std::uint64_t i) { return i < 40 ? 6 : 5; });
}

TEST_F(PtxControl, LanesReadEachOthersRegisters) {
  const auto shuffled = [](const std::string& line, auto expected) {
    expect_values({.operand_type = "u32", .result_type = "u32", .lines = line}, 64, expected);
  };
  shuffled("shfl.sync.down.b32 %d, %a, 3, 31, -1;",
           [](std::uint64_t i) { return i % 32 + 3 > 31 ? i : i + 3; });
  shuffled("shfl.sync.up.b32 %d, %a, 2, 0, -1;",
           [](std::uint64_t i) { return i % 32 < 2 ? i : i - 2; });
  shuffled("shfl.sync.bfly.b32 %d, %a, 5, 31, -1;", [](std::uint64_t i) { return i ^ 5; });
  shuffled("shfl.sync.idx.b32 %d, %a, 9, 31, -1;", [](std::uint64_t i) { return i / 32 * 32 + 9; });
  // In segments of eight lanes.
  shuffled("shfl.sync.down.b32 %d, %a, 1, 0x181f, -1;",
           [](std::uint64_t i) { return i % 8 == 7 ? i : i + 1; });
  shuffled("shfl.sync.down.b32 %d|%p, %a, 3, 31, -1; selp.u32 %d, 1, 0, %p;",
           [](std::uint64_t i) { return i % 32 + 3 > 31 ? 0 : 1; });
}

TEST_F(PtxControl, LanesVoteAndReduce) {
  const auto voted = [](const std::string& line, auto expected) {
    expect_values({.operand_type = "u32", .result_type = "u32", .lines = line}, 64, expected);
  };
  voted("setp.lt.u32 %p, %a, 40; vote.sync.ballot.b32 %d, %p, -1;",
        [](std::uint64_t i) { return i < 32 ? 0xffffffff : 0xff; });
  voted("setp.lt.u32 %p, %a, 40; vote.sync.all.pred %q, %p, -1; selp.u32 %d, 1, 0, %q;",
        [](std::uint64_t i) { return i < 32 ? 1 : 0; });
  voted("setp.lt.u32 %p, %a, 10; vote.sync.any.pred %q, %p, -1; selp.u32 %d, 1, 0, %q;",
        [](std::uint64_t i) { return i < 32 ? 1 : 0; });
  voted("setp.lt.u32 %p, %a, 10; vote.sync.uni.pred %q, %p, -1; selp.u32 %d, 1, 0, %q;",
        [](std::uint64_t i) { return i < 32 ? 0 : 1; });
  voted("redux.sync.add.u32 %d, %a, -1;", [](std::uint64_t i) { return i < 32 ? 496 : 1520; });
  voted("redux.sync.max.s32 %d, %a, -1;", [](std::uint64_t i) { return i < 32 ? 31 : 63; });
  voted("and.b32 %x, %a, 3; match.any.sync.b32 %d, %x, -1;",
        [](std::uint64_t i) { return 0x11111111U << (i % 4); });
  voted("setp.lt.u32 %p, %t, 7; @%p bra $a; mov.u32 %d, 0; bra $b; $a: activemask.b32 %d; $b:",
        [](std::uint64_t i) { return i < 7 ? 0x7f : 0; });
}

// Lanes that diverged meet at instructions that need all of them.
TEST_F(PtxControl, DivergedLanesReconverge) {
  expect_values({.operand_type = "u32", .result_type = "u32", .lines = R"(
    and.b32 %x, %a, 1;
    setp.eq.u32 %p, %x, 0;
    @%p bra $even;
    add.u32 %y, %a, 1000;
    bra $both;
  $even:
    add.u32 %y, %a, 2000;
  $both:
    bar.warp.sync -1;
    shfl.sync.bfly.b32 %d, %y, 1, 31, -1;)"},
                64, [](std::uint64_t i) { return (i ^ 1) + (i % 2 == 0 ? 1000 : 2000); });
}

TEST_F(PtxControl, AtomicsOfAllThreadsCount) {
  const auto last = [](const std::string& line, const std::string& type, std::size_t count) {
    return run_ptx({.operand_type = type, .result_type = type, .lines = line}, counted(count));
  };
  auto ranks = last("atom.global.add.u32 %d, [%memory], 1;", "u32", 1000);
  std::sort(ranks.begin(), ranks.end());
  for (std::size_t i = 0; i < ranks.size(); ++i) ASSERT_EQ(ranks[i], i);
  EXPECT_EQ(last("red.global.max.u32 [%memory], %a; bar.sync 0; ld.global.u32 %d, [%memory];",
                 "u32", 128)[5],
            127u);
  EXPECT_EQ(last("not.b32 %x, 0; atom.global.exch.b32 %d, [%memory], %x; bar.sync 0; "
                 "atom.global.min.u32 %y, [%memory], %c; bar.sync 0; ld.global.u32 %d, [%memory];",
                 "u32", 128)[0],
            100u);
  EXPECT_EQ(last("atom.global.inc.u32 %d, [%memory], 9; bar.sync 0; ld.global.u32 %d, [%memory];",
                 "u32", 123)[0],
            3u);
  EXPECT_EQ(last("atom.global.or.b32 %d, [%memory], %a; bar.sync 0; ld.global.u32 %d, [%memory];",
                 "u32", 64)[0],
            63u);
  EXPECT_EQ(last("red.global.add.u64 [%memory], %a; bar.sync 0; ld.global.u64 %d, [%memory];",
                 "u64", 128)[0],
            8128u);
  const auto floats =
      run_ptx({.operand_type = "u32",
               .result_type = "f32",
               .lines = "cvt.rn.f32.u32 %f, %a; red.global.add.f32 [%memory], %f; bar.sync 0;"
                        "ld.global.f32 %d, [%memory];",
               .declarations = ".reg .f32 %f;\n"},
              counted(64));
  EXPECT_EQ(std::bit_cast<float>(static_cast<std::uint32_t>(floats[9])), 2016.0F);
}

TEST_F(PtxControl, ALockIsHandedFromLaneToLane) {
  // Each lane takes the lock, counts, and releases it: lanes that spin must let the holder make
  // progress.
  const auto found = run_ptx({.operand_type = "u32", .result_type = "u32", .lines = R"(
    mov.u32 %x, 0;
  $again:
    atom.global.cas.b32 %y, [%memory], 0, 1;
    setp.ne.u32 %p, %y, 0;
    @%p bra $again;
    membar.gl;
    ld.volatile.global.u32 %d, [%memory+64];
    add.u32 %x, %d, 1;
    st.volatile.global.u32 [%memory+64], %x;
    membar.gl;
    atom.global.exch.b32 %y, [%memory], 0;)"},
                             counted(256));
  auto ranks = found;
  std::sort(ranks.begin(), ranks.end());
  for (std::size_t i = 0; i < ranks.size(); ++i) ASSERT_EQ(ranks[i], i);
}

TEST_F(PtxControl, VectorsOfValuesMoveTogether) {
  expect_values({.operand_type = "u32", .result_type = "u32", .lines = R"(
    mul.wide.u32 %w, %t, 16;
    add.u64 %w, %w, %memory;
    st.global.v4.u32 [%w], {%a, %b, %c, %t};
    ld.global.v2.u32 {%x, %y}, [%w+8];
    sub.u32 %d, %x, %y;)"},
                128, [](std::uint64_t) { return 100; });
  expect_values(
      {.operand_type = "u32", .result_type = "u32", .lines = R"(
    cvt.u64.u32 %w, %t;
    add.u64 %w, %w, %memory;
    st.global.u8 [%w], %a;
    ld.global.s8 %d, [%w];)"},
      200, [](std::uint64_t i) { return static_cast<std::uint32_t>(static_cast<std::int8_t>(i)); });
}

TEST_F(PtxControl, VariablesOfTheModuleAreFound) {
  expect_values({.operand_type = "u32",
                 .result_type = "u32",
                 .lines = R"(
    ld.const.u32 %x, [table+4];
    mov.u64 %w, numbers;
    ld.global.u32 %y, [%w+8];
    mad.lo.u32 %d, %x, %y, %a;)",
                 .module_text = ".const .align 4 .u32 table[2] = {3, 5};\n.global .align 4 .u32 "
                                "numbers[3] = {1, 2, 7};\n"},
                64, [](std::uint64_t i) { return 35 + i; });
}

TEST_F(PtxControl, SpecialRegistersIdentifyTheThread) {
  expect_values({.operand_type = "u32", .result_type = "u32", .lines = R"(
    mov.u32 %x, %laneid;
    mov.u32 %y, %lanemask_lt;
    popc.b32 %y, %y;
    setp.ne.u32 %p, %x, %y;
    mov.u32 %y, %nctaid.x;
    mad.lo.u32 %d, %y, 1000, %x;
    @%p mov.u32 %d, 0;)"},
                300, [](std::uint64_t i) { return 3000 + i % 128 % 32; });
}

CHILD_ROLE(loads_an_odd_address) {
  CUcontext context = nullptr;
  GIVEN(driver().cuInit(0));
  GIVEN(driver().cuDevicePrimaryCtxRetain(&context, device()));
  GIVEN(driver().cuCtxPushCurrent(context));
  EXPECT_ANY_THROW(run_ptx(
      {.operand_type = "u32", .result_type = "u32", .lines = "ld.global.u32 %d, [%memory+2];"},
      counted(1)));
  EXPECT_ANSWER(CUDA_ERROR_MISALIGNED_ADDRESS, synchronize());
}
CHILD_ROLE(ends_itself) {
  CUcontext context = nullptr;
  GIVEN(driver().cuInit(0));
  GIVEN(driver().cuDevicePrimaryCtxRetain(&context, device()));
  GIVEN(driver().cuCtxPushCurrent(context));
  EXPECT_ANY_THROW(run_ptx(
      {.operand_type = "u32", .result_type = "u32", .lines = "trap; mov.u32 %d, 1;"}, counted(1)));
  EXPECT_ANSWER(CUDA_ERROR_LAUNCH_FAILED, synchronize());
}

TEST_F(PtxControl, AnOddAddressAndATrapAreStickyErrors) {
  EXPECT_EQ(run_child("loads_an_odd_address"), 0);
  EXPECT_EQ(run_child("ends_itself"), 0);
}

}  // namespace
}  // namespace cuvmm::test
