// SPDX-License-Identifier: Apache-2.0
// Arithmetic of f16 and bf16, single and packed: every result is the 16-bit number nearest to the
// exact result.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "ptx_programs.hpp"

namespace cuvmm::test {
namespace {

class PtxHalves : public DriverContract {};

// Holds sums and products of these numbers.
#if defined(__aarch64__)
using Exact = long double;  // of 128 bits
#else
__extension__ using Exact = __float128;
#endif

class ShortFormat {
 public:
  ShortFormat(std::string name, int fraction_bits, int bias)
      : name_(std::move(name)), fraction_bits_(fraction_bits), bias_(bias) {
    for (std::uint32_t bits = 0; bits < infinity(); ++bits) finite_.push_back(value(bits));
  }

  const std::string& name() const { return name_; }
  std::uint32_t infinity() const { return 0x7fffU & ~((1U << fraction_bits_) - 1); }

  double value(std::uint32_t bits) const {
    const std::uint32_t magnitude = bits & 0x7fff;
    const auto exponent = static_cast<int>(magnitude >> fraction_bits_);
    const std::uint32_t fraction = magnitude & ((1U << fraction_bits_) - 1);
    double result = std::ldexp(fraction, 1 - bias_ - fraction_bits_);
    if (exponent != 0) {
      result = std::ldexp(fraction + (1U << fraction_bits_), exponent - bias_ - fraction_bits_);
    }
    if (magnitude == infinity()) result = INFINITY;
    if (magnitude > infinity()) result = NAN;
    return (bits & 0x8000) != 0 ? -result : result;
  }

  // Searches all of them. Of two equally near, returns the even one.
  std::uint32_t nearest(Exact exact) const {
    const bool is_negative = exact < 0;
    const Exact magnitude = is_negative ? -exact : exact;
    const auto above = std::lower_bound(finite_.begin(), finite_.end(), magnitude,
                                        [](double one, Exact other) { return one < other; });
    auto bits = static_cast<std::uint32_t>(above - finite_.begin());
    if (above == finite_.end()) {
      const double step = finite_.back() - finite_[finite_.size() - 2];
      if (magnitude < finite_.back() + Exact{step} / 2) --bits;
    } else if (*above != magnitude) {
      const Exact up = *above - magnitude;
      const Exact down = magnitude - *(above - 1);
      if (down < up || (down == up && bits % 2 != 0)) --bits;
    }
    return bits | (is_negative ? 0x8000 : 0);
  }

 private:
  std::string name_;
  int fraction_bits_;
  int bias_;
  std::vector<double> finite_;  // from zero up, in the order of their bits
};

const ShortFormat& f16() {
  static const ShortFormat format{"f16", 10, 15};
  return format;
}
const ShortFormat& bf16() {
  static const ShortFormat format{"bf16", 7, 127};
  return format;
}

// Operands whose results fit into the exact type.
std::vector<PtxOperands> operands_of(const ShortFormat& format) {
  std::vector<std::uint64_t> special{0, 0x8000, format.infinity(), format.infinity() | 0x8000,
                                     0x7fff};
  // Sums of the smallest and the largest bf16 have too many bits.
  if (&format == &f16()) special.insert(special.end(), {1, 0x8001, format.infinity() - 1});
  std::mt19937_64 chance{11};
  const auto any = [&]() -> std::uint64_t {
    if (chance() % 16 == 0) return special[chance() % special.size()];
    for (;;) {
      const std::uint64_t bits = chance() & 0xffff;
      const double magnitude = std::fabs(format.value(static_cast<std::uint32_t>(bits)));
      if (magnitude < 1e6 && magnitude > 1e-8) return bits;
    }
  };
  std::vector<PtxOperands> operands;
  for (int i = 0; i < 3000; ++i) operands.push_back({any(), any(), any()});
  return operands;
}

using ShortFunction = std::function<Exact(double a, double b, double c)>;

void expect_bits(const ShortFormat& format, std::uint32_t found, const PtxOperands& one,
                 const ShortFunction& expected) {
  const double a = format.value(static_cast<std::uint32_t>(one.a));
  const double b = format.value(static_cast<std::uint32_t>(one.b));
  const double c = format.value(static_cast<std::uint32_t>(one.c));
  const Exact wanted = expected(a, b, c);
  if (wanted != wanted) {
    ASSERT_TRUE(std::isnan(format.value(found))) << a << ' ' << b << ' ' << c;
    return;
  }
  if (wanted == 0) {
    ASSERT_EQ(format.value(found), 0.0) << a << ' ' << b << ' ' << c;
    return;
  }
  ASSERT_EQ(found, format.nearest(wanted))
      << a << ' ' << b << ' ' << c << " gave " << format.value(found);
}

// 'T' stands for the type.
void expect_short(const ShortFormat& format, std::string line, const ShortFunction& expected,
                  const char* target = "sm_80") {
  const std::size_t at = line.find('T');
  const std::string alone = line.substr(0, at) + format.name() + line.substr(at + 1);
  const std::string paired = line.substr(0, at) + format.name() + "x2" + line.substr(at + 1);
  SCOPED_TRACE(alone);
  const auto operands = operands_of(format);
  const auto found = run_ptx(
      {.operand_type = "u16", .result_type = "u16", .lines = alone, .target = target}, operands);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    expect_bits(format, static_cast<std::uint32_t>(found[i]), operands[i], expected);
    if (::testing::Test::HasFatalFailure()) return;
  }
  // Each operand packed with the next into one register.
  std::vector<PtxOperands> pairs;
  for (std::size_t i = 0; i + 1 < operands.size(); ++i) {
    const PtxOperands& low = operands[i];
    const PtxOperands& high = operands[i + 1];
    pairs.push_back({high.a << 16 | low.a, high.b << 16 | low.b, high.c << 16 | low.c});
  }
  const auto found_pairs = run_ptx(
      {.operand_type = "u32", .result_type = "u32", .lines = paired, .target = target}, pairs);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto word = static_cast<std::uint32_t>(found_pairs[i]);
    expect_bits(format, word & 0xffff, operands[i], expected);
    expect_bits(format, word >> 16, operands[i + 1], expected);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

Exact into_unit(Exact value) {
  return value > 0 ? (value < 1 ? value : Exact{1}) : Exact{0};
}

TEST_F(PtxHalves, OfTenBitsAreRoundedOnce) {
  expect_short(f16(), "add.T %d, %a, %b;", [](auto a, auto b, auto) { return Exact{a} + b; });
  expect_short(f16(), "sub.rn.T %d, %a, %b;", [](auto a, auto b, auto) { return Exact{a} - b; });
  expect_short(f16(), "mul.T %d, %a, %b;", [](auto a, auto b, auto) { return Exact{a} * b; });
  expect_short(f16(), "fma.rn.T %d, %a, %b, %c;",
               [](auto a, auto b, auto c) { return Exact{a} * b + c; });
}

TEST_F(PtxHalves, SaturateToOne) {
  expect_short(f16(), "add.sat.T %d, %a, %b;",
               [](auto a, auto b, auto) { return into_unit(Exact{a} + b); });
  expect_short(f16(), "fma.rn.sat.T %d, %a, %b, %c;",
               [](auto a, auto b, auto c) { return into_unit(Exact{a} * b + c); });
  expect_short(f16(), "fma.rn.relu.T %d, %a, %b, %c;", [](auto a, auto b, auto c) {
    const Exact exact = Exact{a} * b + c;
    return exact < 0 ? Exact{0} : exact;
  });
}

TEST_F(PtxHalves, OfSevenBitsAreRoundedOnce) {
  expect_short(bf16(), "fma.rn.T %d, %a, %b, %c;",
               [](auto a, auto b, auto c) { return Exact{a} * b + c; });
  expect_short(
      bf16(), "add.T %d, %a, %b;", [](auto a, auto b, auto) { return Exact{a} + b; }, "sm_90");
  expect_short(
      bf16(), "sub.T %d, %a, %b;", [](auto a, auto b, auto) { return Exact{a} - b; }, "sm_90");
  expect_short(
      bf16(), "mul.T %d, %a, %b;", [](auto a, auto b, auto) { return Exact{a} * b; }, "sm_90");
}

TEST_F(PtxHalves, HaveSignsAndExtremes) {
  for (const ShortFormat* format : {&f16(), &bf16()}) {
    expect_short(*format, "neg.T %d, %a;", [](auto a, auto, auto) { return Exact{-a}; });
    expect_short(*format, "abs.T %d, %a;", [](auto a, auto, auto) { return Exact{std::fabs(a)}; });
    expect_short(*format, "min.T %d, %a, %b;",
                 [](auto a, auto b, auto) { return Exact{std::fmin(a, b)}; });
    expect_short(*format, "max.NaN.T %d, %a, %b;", [](auto a, auto b, auto) {
      return Exact{std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b)};
    });
  }
}

TEST_F(PtxHalves, AreCompared) {
  const auto operands = operands_of(f16());
  const auto expect_chosen = [&](const std::string& line, const auto& holds) {
    const auto found =
        run_ptx({.operand_type = "u16", .result_type = "u16", .lines = line}, operands);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const auto [a, b, c] = operands[i];
      const bool chosen = holds(f16().value(static_cast<std::uint32_t>(a)),
                                f16().value(static_cast<std::uint32_t>(b)));
      ASSERT_EQ(found[i], chosen ? a : c) << line << std::hex << ' ' << a << ' ' << b;
    }
  };
  expect_chosen("setp.lt.f16 %p, %a, %b; selp.b16 %d, %a, %c, %p;",
                [](double a, double b) { return a < b; });
  expect_chosen("setp.geu.f16 %p, %a, %b; selp.b16 %d, %a, %c, %p;",
                [](double a, double b) { return !(a < b); });
  expect_chosen("setp.eq.f16 %p, %a, %b; not.pred %q, %p; selp.b16 %d, %a, %c, %q;",
                [](double a, double b) { return !(a == b); });

  std::vector<PtxOperands> pairs;
  for (const auto& [a, b, c] : operands) pairs.push_back({a << 16 | b, b << 16 | c, 0});
  const auto numbers = run_ptx(
      {.operand_type = "u32", .result_type = "u32", .lines = "set.gt.f16x2.f16x2 %d, %a, %b;"},
      pairs);
  const auto predicates = run_ptx(
      {.operand_type = "u32",
       .result_type = "u32",
       .lines = "setp.le.f16x2 %p|%q, %a, %b; selp.u32 %x, 1, 0, %p; selp.u32 %y, 2, 0, %q; "
                "or.b32 %d, %x, %y;"},
      pairs);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto part = [&](std::uint64_t word, unsigned index) {
      return f16().value(static_cast<std::uint32_t>(word >> (16 * index)) & 0xffff);
    };
    std::uint64_t number = 0;
    std::uint64_t predicate = 0;
    for (unsigned index = 0; index < 2; ++index) {
      const double a = part(pairs[i].a, index);
      const double b = part(pairs[i].b, index);
      if (a > b) number |= std::uint64_t{0x3c00} << (16 * index);
      if (a <= b) predicate |= std::uint64_t{1} << index;
    }
    ASSERT_EQ(numbers[i], number);
    ASSERT_EQ(predicates[i], predicate);
  }
}

TEST_F(PtxHalves, PairsAreMadeOfFloats) {
  const auto operands = float_operands(32);
  for (const ShortFormat* format : {&f16(), &bf16()}) {
    const auto found = run_ptx({.operand_type = "f32",
                                .result_type = "b32",
                                .lines = "cvt.rn." + format->name() + "x2.f32 %d, %a, %b;"},
                               operands);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const auto part = [&](std::uint64_t bits, std::uint32_t result) {
        const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
        if (std::isnan(value)) {
          EXPECT_TRUE(std::isnan(format->value(result)));
        } else if (value == 0) {
          EXPECT_EQ(format->value(result), 0.0);
        } else {
          EXPECT_EQ(result, format->nearest(value)) << format->name() << ' ' << value;
        }
      };
      part(operands[i].a, static_cast<std::uint32_t>(found[i]) >> 16);
      part(operands[i].b, static_cast<std::uint32_t>(found[i]) & 0xffff);
    }
  }
}

TEST_F(PtxHalves, ApproximateFunctionsAreWithinTheirError) {
  const auto expect_near = [](const std::string& line, double (*function)(double)) {
    std::vector<PtxOperands> operands;
    for (std::uint32_t bits = 0; bits < 0x4800; bits += 31) {  // up to 8
      operands.push_back({bits, 0, 0});
      operands.push_back({bits | 0x8000, 0, 0});
    }
    const auto found =
        run_ptx({.operand_type = "u16", .result_type = "u16", .lines = line}, operands);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const double wanted = function(f16().value(static_cast<std::uint32_t>(operands[i].a)));
      const double result = f16().value(static_cast<std::uint32_t>(found[i]));
      ASSERT_NEAR(result, wanted, 2e-3 * std::max(1.0, std::fabs(wanted))) << line;
    }
  };
  expect_near("ex2.approx.f16 %d, %a;", [](double a) { return std::exp2(a); });
  expect_near("tanh.approx.f16 %d, %a;", [](double a) { return std::tanh(a); });
}

}  // namespace
}  // namespace cuvmm::test
