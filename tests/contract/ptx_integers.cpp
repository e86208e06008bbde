// SPDX-License-Identifier: Apache-2.0
// Each integer instruction of PTX, against the host's arithmetic.
#include <array>
#include <bit>
#include <functional>
#include <iterator>
#include <random>
#include <type_traits>

#include "ptx_programs.hpp"

namespace cuvmm::test {
namespace {

class PtxIntegers : public DriverContract {};

template <class T>
using Expected = std::function<std::uint64_t(T a, T b, T c)>;

template <class T>
const char* type_name() {
  constexpr bool is_signed = std::is_signed_v<T>;
  switch (sizeof(T)) {
    case 2:
      return is_signed ? "s16" : "u16";
    case 4:
      return is_signed ? "s32" : "u32";
    default:
      return is_signed ? "s64" : "u64";
  }
}

std::string with_type(std::string text, const std::string& type) {
  for (std::size_t at = text.find('T'); at != std::string::npos; at = text.find('T', at)) {
    text.replace(at, 1, type);
  }
  return text;
}

// 'T' in the lines stands for the type.
template <class T>
void expect_lines(const std::string& text, const Expected<T>& expected,
                  const char* result_type = nullptr, bool divides = false) {
  const std::string type = type_name<T>();
  const std::string lines = with_type(text, type);
  SCOPED_TRACE(lines);
  auto operands = integer_operands(sizeof(T) * 8);
  if (divides) {
    for (PtxOperands& one : operands) one.b = one.b == 0 ? 5 : one.b;
  }
  const std::string result = result_type != nullptr ? result_type : type;
  const auto found =
      run_ptx({.operand_type = type, .result_type = result, .lines = lines}, operands);
  const unsigned bits = static_cast<unsigned>(std::stoi(result.substr(1)));
  const std::uint64_t mask = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto [a, b, c] = operands[i];
    const std::uint64_t wanted =
        expected(static_cast<T>(a), static_cast<T>(b), static_cast<T>(c)) & mask;
    ASSERT_EQ(found[i], wanted) << std::hex << "a " << a << " b " << b << " c " << c;
  }
}

template <class T>
using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;

template <class T>
void expect_arithmetic() {
  using W = Wide<T>;
  constexpr unsigned bits = sizeof(T) * 8;
  expect_lines<T>("add.T %d, %a, %b;",
                  [](T a, T b, T) { return static_cast<std::uint64_t>(W{a} + b); });
  expect_lines<T>("sub.T %d, %a, %b;",
                  [](T a, T b, T) { return static_cast<std::uint64_t>(W{a} - b); });
  expect_lines<T>("mul.lo.T %d, %a, %b;",
                  [](T a, T b, T) { return static_cast<std::uint64_t>(W{a} * b); });
  expect_lines<T>("mul.hi.T %d, %a, %b;",
                  [](T a, T b, T) { return static_cast<std::uint64_t>((W{a} * b) >> bits); });
  expect_lines<T>("mad.lo.T %d, %a, %b, %c;", [](T a, T b, T c) {
    return static_cast<std::uint64_t>(W{a} * b) + static_cast<std::uint64_t>(c);
  });
  expect_lines<T>("mad.hi.T %d, %a, %b, %c;", [](T a, T b, T c) {
    return static_cast<std::uint64_t>((W{a} * b) >> bits) + static_cast<std::uint64_t>(c);
  });
  expect_lines<T>(
      "div.T %d, %a, %b;", [](T a, T b, T) { return static_cast<std::uint64_t>(W{a} / b); },
      nullptr, true);
  expect_lines<T>(
      "rem.T %d, %a, %b;", [](T a, T b, T) { return static_cast<std::uint64_t>(W{a} % b); },
      nullptr, true);
  expect_lines<T>("min.T %d, %a, %b;",
                  [](T a, T b, T) { return static_cast<std::uint64_t>(a < b ? a : b); });
  expect_lines<T>("max.T %d, %a, %b;",
                  [](T a, T b, T) { return static_cast<std::uint64_t>(a > b ? a : b); });
  expect_lines<T>("sad.T %d, %a, %b, %c;", [](T a, T b, T c) {
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
  expect_lines<T>("abs.T %d, %a;", [](T a, T, T) {
    return a < 0 ? 0 - static_cast<std::uint64_t>(a) : static_cast<std::uint64_t>(a);
  });
  expect_lines<T>("neg.T %d, %a;", [](T a, T, T) { return 0 - static_cast<std::uint64_t>(a); });
}

TEST_F(PtxIntegers, SignedOnesAreNegated) {
  expect_signs<std::int16_t>();
  expect_signs<std::int32_t>();
  expect_signs<std::int64_t>();
}

TEST_F(PtxIntegers, ProductsAreWidened) {
  expect_lines<std::uint32_t>(
      "mul.wide.u32 %d, %a, %b;", [](auto a, auto b, auto) { return std::uint64_t{a} * b; }, "u64");
  expect_lines<std::int32_t>(
      "mul.wide.s32 %d, %a, %b;",
      [](auto a, auto b, auto) { return static_cast<std::uint64_t>(std::int64_t{a} * b); }, "s64");
  expect_lines<std::uint16_t>(
      "mul.wide.u16 %d, %a, %b;", [](auto a, auto b, auto) { return std::uint64_t{a} * b; }, "u32");
  expect_lines<std::int32_t>(
      "cvt.s64.s32 %w, %c; mad.wide.s32 %d, %a, %b, %w;",
      [](auto a, auto b, auto c) { return static_cast<std::uint64_t>(std::int64_t{a} * b + c); },
      "s64");
  expect_lines<std::uint32_t>("mul24.lo.u32 %d, %a, %b;", [](auto a, auto b, auto) {
    return std::uint64_t{a & 0xffffff} * (b & 0xffffff);
  });
}

TEST_F(PtxIntegers, SumsSaturateAndCarry) {
  expect_lines<std::int32_t>("add.sat.s32 %d, %a, %b;", [](auto a, auto b, auto) {
    const std::int64_t sum = std::int64_t{a} + b;
    return static_cast<std::uint64_t>(sum > INT32_MAX ? INT32_MAX
                                                      : (sum < INT32_MIN ? INT32_MIN : sum));
  });
  expect_lines<std::uint32_t>(
      "add.cc.u32 %x, %a, %b; addc.u32 %d, %c, 0;",
      [](auto a, auto b, auto c) { return std::uint64_t{c} + ((std::uint64_t{a} + b) >> 32); });
  expect_lines<std::uint32_t>(
      "sub.cc.u32 %x, %a, %b; subc.u32 %d, %c, 0;",
      [](auto a, auto b, auto c) { return std::uint64_t{c} - (a < b ? 1 : 0); });
}

template <class T>
void expect_bits(const std::string& type, const std::string& result) {
  constexpr unsigned bits = sizeof(T) * 8;
  const auto check = [&](std::string text, const Expected<T>& expected, const std::string& as) {
    text = with_type(std::move(text), type);
    expect_lines<T>(text, expected, as.c_str());
  };
  check(
      "and.T %d, %a, %b;", [](T a, T b, T) { return a & b; }, result);
  check(
      "or.T %d, %a, %b;", [](T a, T b, T) { return a | b; }, result);
  check(
      "xor.T %d, %a, %b;", [](T a, T b, T) { return a ^ b; }, result);
  check(
      "not.T %d, %a;", [](T a, T, T) { return static_cast<T>(~a); }, result);
  check(
      "cnot.T %d, %a;", [](T a, T, T) { return a == 0 ? 1 : 0; }, result);
  const std::string amount =
      bits == 64 ? "cvt.u32.u64 %x, %b;" : (bits == 16 ? "cvt.u32.u16 %x, %b;" : "mov.b32 %x, %b;");
  check(
      amount + "shl.T %d, %a, %x;",
      [](T a, T b, T) {
        return static_cast<std::uint32_t>(b) >= bits
                   ? T{0}
                   : static_cast<T>(a << static_cast<std::uint32_t>(b));
      },
      result);
}

TEST_F(PtxIntegers, BitsAreCombined) {
  expect_bits<std::uint16_t>("b16", "u16");
  expect_bits<std::uint32_t>("b32", "u32");
  expect_bits<std::uint64_t>("b64", "u64");
}

template <class T>
T shifted_right(T a, std::uint32_t by) {
  if (by >= sizeof(T) * 8) return a < 0 ? static_cast<T>(-1) : T{0};
  return static_cast<T>(a >> by);
}

TEST_F(PtxIntegers, ShiftsToTheRightKeepTheSign) {
  expect_lines<std::int32_t>("shr.s32 %d, %a, %b;", [](auto a, auto b, auto) {
    return static_cast<std::uint64_t>(shifted_right(a, static_cast<std::uint32_t>(b)));
  });
  expect_lines<std::uint32_t>("shr.u32 %d, %a, %b;",
                              [](auto a, auto b, auto) { return shifted_right(a, b); });
  expect_lines<std::int64_t>("cvt.u32.u64 %x, %b; shr.s64 %d, %a, %x;", [](auto a, auto b, auto) {
    return static_cast<std::uint64_t>(shifted_right(a, static_cast<std::uint32_t>(b)));
  });
  expect_lines<std::uint64_t>("cvt.u32.u64 %x, %b; shr.u64 %d, %a, %x;", [](auto a, auto b, auto) {
    return shifted_right(a, static_cast<std::uint32_t>(b));
  });
}

TEST_F(PtxIntegers, BitsAreCountedAndFound) {
  expect_lines<std::uint32_t>("popc.b32 %d, %a;", [](auto a, auto, auto) {
    return static_cast<std::uint64_t>(std::popcount(a));
  });
  expect_lines<std::uint64_t>(
      "popc.b64 %d, %a;",
      [](auto a, auto, auto) { return static_cast<std::uint64_t>(std::popcount(a)); }, "u32");
  expect_lines<std::uint32_t>("clz.b32 %d, %a;", [](auto a, auto, auto) {
    return static_cast<std::uint64_t>(std::countl_zero(a));
  });
  expect_lines<std::uint64_t>(
      "clz.b64 %d, %a;",
      [](auto a, auto, auto) { return static_cast<std::uint64_t>(std::countl_zero(a)); }, "u32");
  expect_lines<std::uint32_t>("bfind.u32 %d, %a;", [](auto a, auto, auto) {
    return std::uint64_t{31} - static_cast<unsigned>(std::countl_zero(a));
  });
  expect_lines<std::int32_t>(
      "bfind.s32 %d, %a;",
      [](auto a, auto, auto) {
        const auto value = static_cast<std::uint32_t>(a < 0 ? ~a : a);
        return std::uint64_t{31} - static_cast<unsigned>(std::countl_zero(value));
      },
      "u32");
  expect_lines<std::uint32_t>("bfind.shiftamt.u32 %d, %a;", [](auto a, auto, auto) {
    return a == 0 ? 0xffffffff : static_cast<std::uint64_t>(std::countl_zero(a));
  });
  expect_lines<std::uint32_t>("brev.b32 %d, %a;", [](auto a, auto, auto) {
    std::uint64_t reversed = 0;
    for (int i = 0; i < 32; ++i) reversed |= std::uint64_t{(a >> i) & 1} << (31 - i);
    return reversed;
  });
}

// As the manual of PTX has it, bit by bit.
template <class T>
std::uint64_t extracted(T a, std::uint32_t b, std::uint32_t c) {
  constexpr std::uint32_t msb = sizeof(T) * 8 - 1;
  const std::uint32_t position = b & 0xff;
  const std::uint32_t length = c & 0xff;
  const auto bit = [&](std::uint32_t i) { return (static_cast<std::uint64_t>(a) >> i) & 1; };
  const std::uint32_t top = position + length - 1 < msb ? position + length - 1 : msb;
  const std::uint64_t sign = std::is_unsigned_v<T> || length == 0 ? 0 : bit(top);
  std::uint64_t field = 0;
  for (std::uint32_t i = 0; i <= msb; ++i) {
    field |= (i < length && position + i <= msb ? bit(position + i) : sign) << i;
  }
  return field;
}

TEST_F(PtxIntegers, FieldsAreTakenOutAndPutIn) {
  expect_lines<std::uint32_t>("bfe.u32 %d, %a, %b, %c;",
                              [](auto a, auto b, auto c) { return extracted(a, b, c); });
  expect_lines<std::int32_t>("bfe.s32 %d, %a, %b, %c;", [](auto a, auto b, auto c) {
    return extracted(a, static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(c));
  });
  // A card does not cut positions beyond 255 for 64 bits, as PTX says and it does for 32.
  expect_lines<std::uint64_t>(
      "cvt.u32.u64 %x, %b; cvt.u32.u64 %y, %c; and.b32 %x, %x, 255; "
      "and.b32 %y, %y, 255; bfe.u64 %d, %a, %x, %y;",
      [](auto a, auto b, auto c) {
        return extracted(a, static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(c));
      });
  expect_lines<std::uint32_t>("bfi.b32 %d, %a, %b, %c, 5;", [](auto a, auto b, auto c) {
    std::uint64_t result = b;
    const std::uint32_t position = c & 0xff;
    for (std::uint32_t i = 0; i < 5 && position + i < 32; ++i) {
      const std::uint64_t bit = std::uint64_t{1} << (position + i);
      result = (result & ~bit) | (((a >> i) & 1) != 0 ? bit : 0);
    }
    return result;
  });
}

TEST_F(PtxIntegers, BytesAndBitsArePermuted) {
  expect_lines<std::uint32_t>("prmt.b32 %d, %a, %b, %c;", [](auto a, auto b, auto c) {
    const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
    std::uint64_t result = 0;
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t choice = (c >> (4 * i)) & 0xf;
      std::uint64_t byte = (bytes >> (8 * (choice & 7))) & 0xff;
      if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  });
  expect_lines<std::uint32_t>("lop3.b32 %d, %a, %b, %c, 0x96;",
                              [](auto a, auto b, auto c) { return a ^ b ^ c; });
  expect_lines<std::uint32_t>("lop3.b32 %d, %a, %b, %c, 0xe8;",
                              [](auto a, auto b, auto c) { return (a & b) | (a & c) | (b & c); });
  expect_lines<std::uint32_t>("lop3.b32 %d, %a, %b, %c, 0xca;",
                              [](auto a, auto b, auto c) { return (a & b) | (~a & c); });
  expect_lines<std::uint32_t>("shf.l.wrap.b32 %d, %a, %b, %c;", [](auto a, auto b, auto c) {
    return ((std::uint64_t{b} << 32 | a) << (c & 31)) >> 32;
  });
  expect_lines<std::uint32_t>("shf.r.clamp.b32 %d, %a, %b, %c;", [](auto a, auto b, auto c) {
    return (std::uint64_t{b} << 32 | a) >> (c > 32 ? 32 : c);
  });
  expect_lines<std::uint64_t>("mov.b64 {%x, %y}, %a; mov.b64 %d, {%y, %x};",
                              [](auto a, auto, auto) { return a << 32 | a >> 32; });
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
    expect_lines<T>(
        "setp." + std::string{one.name} + ".T %p, %a, %b; selp.T %d, %a, %c, %p;",
        [&](T a, T b, T c) { return static_cast<std::uint64_t>(one.holds(a, b) ? a : c); });
  }
  expect_lines<T>(
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

TEST_F(PtxIntegers, PredicatesAreCombined) {
  expect_lines<std::uint32_t>(
      "setp.lt.u32 %p, %a, %b; setp.lt.u32 %q, %b, %c; and.pred %p, %p, %q; not.pred %p, %p; @!%p "
      "mov.u32 %d, %a; @%p mov.u32 %d, %b;",
      [](auto a, auto b, auto c) { return a < b && b < c ? a : b; });
  expect_lines<std::int32_t>("slct.s32.s32 %d, %a, %b, %c;", [](auto a, auto b, auto c) {
    return static_cast<std::uint64_t>(c >= 0 ? a : b);
  });
}

// Some straight line of instructions that have one answer, whatever comes before.
TEST_F(PtxIntegers, RandomProgramsComeOutAsTheHostSays) {
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
