// SPDX-License-Identifier: Apache-2.0
// PTX instructions that combine, move and count bits, compared with the host.
#include <bit>
#include <type_traits>

#include "ptx_integer_lines.hpp"

namespace cuvmm::test {
namespace {

class PtxBits : public DriverContract {};

template <class T>
void expect_bits(const std::string& type, const std::string& result) {
  constexpr unsigned bits = sizeof(T) * 8;
  const auto check = [&](std::string text, const Expected<T>& expected, const std::string& as) {
    text = with_type(std::move(text), type);
    expect_integer_lines<T>(text, expected, as.c_str());
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

TEST_F(PtxBits, BitsAreCombined) {
  expect_bits<std::uint16_t>("b16", "u16");
  expect_bits<std::uint32_t>("b32", "u32");
  expect_bits<std::uint64_t>("b64", "u64");
}

template <class T>
T shifted_right(T a, std::uint32_t by) {
  if (by >= sizeof(T) * 8) return a < 0 ? static_cast<T>(-1) : T{0};
  return static_cast<T>(a >> by);
}

TEST_F(PtxBits, ShiftsToTheRightKeepTheSign) {
  expect_integer_lines<std::int32_t>("shr.s32 %d, %a, %b;", [](auto a, auto b, auto) {
    return static_cast<std::uint64_t>(shifted_right(a, static_cast<std::uint32_t>(b)));
  });
  expect_integer_lines<std::uint32_t>("shr.u32 %d, %a, %b;",
                                      [](auto a, auto b, auto) { return shifted_right(a, b); });
  expect_integer_lines<std::int64_t>(
      "cvt.u32.u64 %x, %b; shr.s64 %d, %a, %x;", [](auto a, auto b, auto) {
        return static_cast<std::uint64_t>(shifted_right(a, static_cast<std::uint32_t>(b)));
      });
  expect_integer_lines<std::uint64_t>(
      "cvt.u32.u64 %x, %b; shr.u64 %d, %a, %x;",
      [](auto a, auto b, auto) { return shifted_right(a, static_cast<std::uint32_t>(b)); });
}

TEST_F(PtxBits, BitsAreCountedAndFound) {
  expect_integer_lines<std::uint32_t>("popc.b32 %d, %a;", [](auto a, auto, auto) {
    return static_cast<std::uint64_t>(std::popcount(a));
  });
  expect_integer_lines<std::uint64_t>(
      "popc.b64 %d, %a;",
      [](auto a, auto, auto) { return static_cast<std::uint64_t>(std::popcount(a)); }, "u32");
  expect_integer_lines<std::uint32_t>("clz.b32 %d, %a;", [](auto a, auto, auto) {
    return static_cast<std::uint64_t>(std::countl_zero(a));
  });
  expect_integer_lines<std::uint64_t>(
      "clz.b64 %d, %a;",
      [](auto a, auto, auto) { return static_cast<std::uint64_t>(std::countl_zero(a)); }, "u32");
  expect_integer_lines<std::uint32_t>("bfind.u32 %d, %a;", [](auto a, auto, auto) {
    return std::uint64_t{31} - static_cast<unsigned>(std::countl_zero(a));
  });
  expect_integer_lines<std::int32_t>(
      "bfind.s32 %d, %a;",
      [](auto a, auto, auto) {
        const auto value = static_cast<std::uint32_t>(a < 0 ? ~a : a);
        return std::uint64_t{31} - static_cast<unsigned>(std::countl_zero(value));
      },
      "u32");
  expect_integer_lines<std::uint32_t>("bfind.shiftamt.u32 %d, %a;", [](auto a, auto, auto) {
    return a == 0 ? 0xffffffff : static_cast<std::uint64_t>(std::countl_zero(a));
  });
  expect_integer_lines<std::uint32_t>("brev.b32 %d, %a;", [](auto a, auto, auto) {
    std::uint64_t reversed = 0;
    for (int i = 0; i < 32; ++i) reversed |= std::uint64_t{(a >> i) & 1} << (31 - i);
    return reversed;
  });
}

// As the PTX manual defines it, bit by bit.
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

TEST_F(PtxBits, FieldsAreTakenOutAndPutIn) {
  expect_integer_lines<std::uint32_t>("bfe.u32 %d, %a, %b, %c;",
                                      [](auto a, auto b, auto c) { return extracted(a, b, c); });
  expect_integer_lines<std::int32_t>("bfe.s32 %d, %a, %b, %c;", [](auto a, auto b, auto c) {
    return extracted(a, static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(c));
  });
  // For 64 bits a card does not clamp positions beyond 255, contrary to the PTX manual; for 32 bits
  // it does.
  expect_integer_lines<std::uint64_t>(
      "cvt.u32.u64 %x, %b; cvt.u32.u64 %y, %c; and.b32 %x, %x, 255; "
      "and.b32 %y, %y, 255; bfe.u64 %d, %a, %x, %y;",
      [](auto a, auto b, auto c) {
        return extracted(a, static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(c));
      });
  expect_integer_lines<std::uint32_t>("bfi.b32 %d, %a, %b, %c, 5;", [](auto a, auto b, auto c) {
    std::uint64_t result = b;
    const std::uint32_t position = c & 0xff;
    for (std::uint32_t i = 0; i < 5 && position + i < 32; ++i) {
      const std::uint64_t bit = std::uint64_t{1} << (position + i);
      result = (result & ~bit) | (((a >> i) & 1) != 0 ? bit : 0);
    }
    return result;
  });
}

TEST_F(PtxBits, BytesAndBitsArePermuted) {
  expect_integer_lines<std::uint32_t>("prmt.b32 %d, %a, %b, %c;", [](auto a, auto b, auto c) {
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
  expect_integer_lines<std::uint32_t>("lop3.b32 %d, %a, %b, %c, 0x96;",
                                      [](auto a, auto b, auto c) { return a ^ b ^ c; });
  expect_integer_lines<std::uint32_t>("lop3.b32 %d, %a, %b, %c, 0xe8;", [](auto a, auto b, auto c) {
    return (a & b) | (a & c) | (b & c);
  });
  expect_integer_lines<std::uint32_t>("lop3.b32 %d, %a, %b, %c, 0xca;",
                                      [](auto a, auto b, auto c) { return (a & b) | (~a & c); });
  expect_integer_lines<std::uint32_t>("shf.l.wrap.b32 %d, %a, %b, %c;", [](auto a, auto b, auto c) {
    return ((std::uint64_t{b} << 32 | a) << (c & 31)) >> 32;
  });
  expect_integer_lines<std::uint32_t>(
      "shf.r.clamp.b32 %d, %a, %b, %c;",
      [](auto a, auto b, auto c) { return (std::uint64_t{b} << 32 | a) >> (c > 32 ? 32 : c); });
  expect_integer_lines<std::uint64_t>("mov.b64 {%x, %y}, %a; mov.b64 %d, {%y, %x};",
                                      [](auto a, auto, auto) { return a << 32 | a >> 32; });
}

}  // namespace
}  // namespace cuvmm::test
