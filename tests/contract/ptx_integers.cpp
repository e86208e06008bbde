// SPDX-License-Identifier: Apache-2.0
// Each integer instruction of PTX, compared with the host's arithmetic.
#include <array>
#include <bit>
#include <functional>
#include <iterator>
#include <random>
#include <type_traits>

#include "ptx_integer_lines.hpp"

namespace cuvmm::test {
namespace {

class PtxIntegers : public DriverContract {};

template <class T>
using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;

template <class T>
void expect_arithmetic() {
  using W = Wide<T>;
  constexpr unsigned bits = sizeof(T) * 8;
  expect_integer_lines<T>("add.T %d, %a, %b;",
                          [](T a, T b, T) { return static_cast<std::uint64_t>(W{a} + b); });
  expect_integer_lines<T>("sub.T %d, %a, %b;",
                          [](T a, T b, T) { return static_cast<std::uint64_t>(W{a} - b); });
  expect_integer_lines<T>("mul.lo.T %d, %a, %b;",
                          [](T a, T b, T) { return static_cast<std::uint64_t>(W{a} * b); });
  expect_integer_lines<T>("mul.hi.T %d, %a, %b;", [](T a, T b, T) {
    return static_cast<std::uint64_t>((W{a} * b) >> bits);
  });
  expect_integer_lines<T>("mad.lo.T %d, %a, %b, %c;", [](T a, T b, T c) {
    return static_cast<std::uint64_t>(W{a} * b) + static_cast<std::uint64_t>(c);
  });
  expect_integer_lines<T>("mad.hi.T %d, %a, %b, %c;", [](T a, T b, T c) {
    return static_cast<std::uint64_t>((W{a} * b) >> bits) + static_cast<std::uint64_t>(c);
  });
  expect_integer_lines<T>(
      "div.T %d, %a, %b;", [](T a, T b, T) { return static_cast<std::uint64_t>(W{a} / b); },
      nullptr, true);
  expect_integer_lines<T>(
      "rem.T %d, %a, %b;", [](T a, T b, T) { return static_cast<std::uint64_t>(W{a} % b); },
      nullptr, true);
  expect_integer_lines<T>("min.T %d, %a, %b;",
                          [](T a, T b, T) { return static_cast<std::uint64_t>(a < b ? a : b); });
  expect_integer_lines<T>("max.T %d, %a, %b;",
                          [](T a, T b, T) { return static_cast<std::uint64_t>(a > b ? a : b); });
  expect_integer_lines<T>("sad.T %d, %a, %b, %c;", [](T a, T b, T c) {
    return static_cast<std::uint64_t>(a < b ? W{b} - a : W{a} - b) + static_cast<std::uint64_t>(c);
  });
}

TEST_F(PtxIntegers, OfAllSizesAreCalculated) {
  expect_arithmetic<std::uint16_t>();
  expect_arithmetic<std::int16_t>();
  expect_arithmetic<std::uint32_t>();
  expect_arithmetic<std::int32_t>();
  expect_arithmetic<std::uint64_t>();
  expect_arithmetic<std::int64_t>();
}

template <class T>
void expect_signs() {
  expect_integer_lines<T>("abs.T %d, %a;", [](T a, T, T) {
    return a < 0 ? 0 - static_cast<std::uint64_t>(a) : static_cast<std::uint64_t>(a);
  });
  expect_integer_lines<T>("neg.T %d, %a;",
                          [](T a, T, T) { return 0 - static_cast<std::uint64_t>(a); });
}

TEST_F(PtxIntegers, SignedOnesAreNegated) {
  expect_signs<std::int16_t>();
  expect_signs<std::int32_t>();
  expect_signs<std::int64_t>();
}

TEST_F(PtxIntegers, ProductsAreWidened) {
  expect_integer_lines<std::uint32_t>(
      "mul.wide.u32 %d, %a, %b;", [](auto a, auto b, auto) { return std::uint64_t{a} * b; }, "u64");
  expect_integer_lines<std::int32_t>(
      "mul.wide.s32 %d, %a, %b;",
      [](auto a, auto b, auto) { return static_cast<std::uint64_t>(std::int64_t{a} * b); }, "s64");
  expect_integer_lines<std::uint16_t>(
      "mul.wide.u16 %d, %a, %b;", [](auto a, auto b, auto) { return std::uint64_t{a} * b; }, "u32");
  expect_integer_lines<std::int32_t>(
      "cvt.s64.s32 %w, %c; mad.wide.s32 %d, %a, %b, %w;",
      [](auto a, auto b, auto c) { return static_cast<std::uint64_t>(std::int64_t{a} * b + c); },
      "s64");
  expect_integer_lines<std::uint32_t>("mul24.lo.u32 %d, %a, %b;", [](auto a, auto b, auto) {
    return std::uint64_t{a & 0xffffff} * (b & 0xffffff);
  });
}

TEST_F(PtxIntegers, SumsSaturateAndCarry) {
  expect_integer_lines<std::int32_t>("add.sat.s32 %d, %a, %b;", [](auto a, auto b, auto) {
    const std::int64_t sum = std::int64_t{a} + b;
    return static_cast<std::uint64_t>(sum > INT32_MAX ? INT32_MAX
                                                      : (sum < INT32_MIN ? INT32_MIN : sum));
  });
  expect_integer_lines<std::uint32_t>(
      "add.cc.u32 %x, %a, %b; addc.u32 %d, %c, 0;",
      [](auto a, auto b, auto c) { return std::uint64_t{c} + ((std::uint64_t{a} + b) >> 32); });
  expect_integer_lines<std::uint32_t>(
      "sub.cc.u32 %x, %a, %b; subc.u32 %d, %c, 0;",
      [](auto a, auto b, auto c) { return std::uint64_t{c} - (a < b ? 1 : 0); });
}

TEST_F(PtxIntegers, ProductsCarryAsWell) {
  expect_integer_lines<std::uint32_t>(
      "mad.lo.cc.u32 %x, %a, %b, %c; madc.hi.u32 %d, %a, %b, 0;",
      [](auto a, auto b, auto c) { return (std::uint64_t{a} * b + c) >> 32; });
  expect_integer_lines<std::uint64_t>(
      "mad.lo.cc.u64 %w, %a, %b, %c; madc.hi.u64 %d, %a, %b, 0;", [](auto a, auto b, auto c) {
        const auto whole = static_cast<unsigned __int128>(a) * b + c;
        return static_cast<std::uint64_t>(whole >> 64);
      });
  expect_integer_lines<std::uint32_t>("mad.hi.cc.u32 %x, %a, %b, %c; addc.u32 %d, %x, 0;",
                                      [](auto a, auto b, auto c) {
                                        const std::uint64_t sum = (std::uint64_t{a} * b >> 32) + c;
                                        return sum + (sum >> 32);
                                      });
}

std::int64_t byte_of(std::uint32_t word, unsigned index, bool is_signed) {
  const std::uint32_t byte = (word >> (8 * index)) & 0xff;
  return is_signed ? static_cast<std::int8_t>(byte) : static_cast<std::int64_t>(byte);
}

std::int64_t word_of(std::uint32_t word, unsigned index, bool is_signed) {
  const std::uint32_t half = (word >> (16 * index)) & 0xffff;
  return is_signed ? static_cast<std::int16_t>(half) : static_cast<std::int64_t>(half);
}

TEST_F(PtxIntegers, ProductsOfBytesAreSummed) {
  for (const bool a_is_signed : {false, true}) {
    for (const bool b_is_signed : {false, true}) {
      const std::string types =
          std::string{a_is_signed ? ".s32" : ".u32"} + (b_is_signed ? ".s32" : ".u32");
      expect_integer_lines<std::uint32_t>(
          "dp4a" + types + " %d, %a, %b, %c;", [&](auto a, auto b, auto c) {
            std::int64_t sum = c;
            for (unsigned i = 0; i < 4; ++i) {
              sum += byte_of(a, i, a_is_signed) * byte_of(b, i, b_is_signed);
            }
            return static_cast<std::uint64_t>(sum);
          });
      for (const unsigned first : {0U, 2U}) {
        expect_integer_lines<std::uint32_t>(
            std::string{first == 0 ? "dp2a.lo" : "dp2a.hi"} + types + " %d, %a, %b, %c;",
            [&](auto a, auto b, auto c) {
              std::int64_t sum = c;
              for (unsigned i = 0; i < 2; ++i) {
                sum += word_of(a, i, a_is_signed) * byte_of(b, first + i, b_is_signed);
              }
              return static_cast<std::uint64_t>(sum);
            });
      }
    }
  }
}

template <class T>
void expect_comparisons() {
  struct Comparison {
    const char* name;
    bool (*holds)(T a, T b);
  };
  const Comparison all[] = {
      {"eq", [](T a, T b) { return a == b; }}, {"ne", [](T a, T b) { return a != b; }},
      {"lt", [](T a, T b) { return a < b; }},  {"le", [](T a, T b) { return a <= b; }},
      {"gt", [](T a, T b) { return a > b; }},  {"ge", [](T a, T b) { return a >= b; }}};
  for (const Comparison& one : all) {
    expect_integer_lines<T>(
        "setp." + std::string{one.name} + ".T %p, %a, %b; selp.T %d, %a, %c, %p;",
        [&](T a, T b, T c) { return static_cast<std::uint64_t>(one.holds(a, b) ? a : c); });
  }
  expect_integer_lines<T>(
      "setp.eq.T %q, %a, %c; setp.lt.or.T %p|%q, %a, %b, %q; selp.T %d, %a, %b, %q;",
      [](T a, T b, T c) { return static_cast<std::uint64_t>(!(a < b) || a == c ? a : b); });
}

TEST_F(PtxIntegers, AreCompared) {
  expect_comparisons<std::uint16_t>();
  expect_comparisons<std::int32_t>();
  expect_comparisons<std::uint32_t>();
  expect_comparisons<std::int64_t>();
  expect_comparisons<std::uint64_t>();
}

TEST_F(PtxIntegers, ComparisonsGiveNumbers) {
  expect_integer_lines<std::int32_t>(
      "set.lt.u32.s32 %d, %a, %b;",
      [](auto a, auto b, auto) { return a < b ? std::uint64_t{0xffffffff} : 0; }, "u32");
  expect_integer_lines<std::uint32_t>(
      "set.hi.f32.u32 %d, %a, %b;",
      [](auto a, auto b, auto) { return a > b ? std::uint64_t{0x3f800000} : 0; }, "f32");
  expect_integer_lines<std::uint64_t>(
      "setp.eq.u64 %p, %b, %c; set.ne.xor.u32.u64 %d, %a, %b, %p;",
      [](auto a, auto b, auto c) { return (a != b) != (b == c) ? std::uint64_t{0xffffffff} : 0; },
      "u32");
}

TEST_F(PtxIntegers, PredicatesAreCombined) {
  expect_integer_lines<std::uint32_t>(
      "setp.lt.u32 %p, %a, %b; setp.lt.u32 %q, %b, %c; and.pred %p, %p, %q; not.pred %p, %p; @!%p "
      "mov.u32 %d, %a; @%p mov.u32 %d, %b;",
      [](auto a, auto b, auto c) { return a < b && b < c ? a : b; });
  expect_integer_lines<std::int32_t>("slct.s32.s32 %d, %a, %b, %c;", [](auto a, auto b, auto c) {
    return static_cast<std::uint64_t>(c >= 0 ? a : b);
  });
}

// Random straight-line code with a well-defined result for any operands.
TEST_F(PtxIntegers, RandomProgramsMatchTheHost) {
  struct Step {
    const char* text;
    std::uint32_t (*value)(std::uint32_t, std::uint32_t);
  };
  const Step steps[] = {
      {"add.u32", [](auto a, auto b) { return a + b; }},
      {"sub.s32", [](auto a, auto b) { return a - b; }},
      {"mul.lo.u32", [](auto a, auto b) { return a * b; }},
      {"mul.hi.u32",
       [](auto a, auto b) { return static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32); }},
      {"and.b32", [](auto a, auto b) { return a & b; }},
      {"or.b32", [](auto a, auto b) { return a | b; }},
      {"xor.b32", [](auto a, auto b) { return a ^ b; }},
      {"min.s32",
       [](auto a, auto b) {
         return static_cast<std::int32_t>(a) < static_cast<std::int32_t>(b) ? a : b;
       }},
      {"max.u32", [](auto a, auto b) { return a > b ? a : b; }},
      {"shl.b32", [](auto a, auto b) { return b > 31 ? 0 : a << b; }},
      {"shr.u32", [](auto a, auto b) { return b > 31 ? 0 : a >> b; }}};
  std::mt19937_64 chance{42};
  const auto operands = integer_operands(32);
  for (int program = 0; program < 20; ++program) {
    std::string text = "mov.u32 %r0, %a; mov.u32 %r1, %b; mov.u32 %r2, %c; mov.u32 %r3, %t;\n";
    std::vector<std::array<unsigned, 4>> made;
    for (int i = 0; i < 40; ++i) {
      const auto pick = static_cast<unsigned>(chance() % std::size(steps));
      const auto to = static_cast<unsigned>(chance() % 4);
      const auto first = static_cast<unsigned>(chance() % 4);
      const auto second = static_cast<unsigned>(chance() % 4);
      made.push_back({pick, to, first, second});
      text += std::string{steps[pick].text} + " %r" + std::to_string(to) + ", %r" +
              std::to_string(first) + ", %r" + std::to_string(second) + ";\n";
    }
    text += "mov.u32 %d, %r0;";
    const auto found = run_ptx({.operand_type = "u32",
                                .result_type = "u32",
                                .lines = text,
                                .declarations = ".reg .b32 %r<4>;\n"},
                               operands);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      std::uint32_t r[4] = {
          static_cast<std::uint32_t>(operands[i].a), static_cast<std::uint32_t>(operands[i].b),
          static_cast<std::uint32_t>(operands[i].c), static_cast<std::uint32_t>(i)};
      for (const auto& [pick, to, first, second] : made)
        r[to] = steps[pick].value(r[first], r[second]);
      ASSERT_EQ(found[i], r[0]) << text;
    }
  }
}

}  // namespace
}  // namespace cuvmm::test
