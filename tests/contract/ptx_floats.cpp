// SPDX-License-Identifier: Apache-2.0
// Each floating-point instruction of PTX: bit for bit where IEEE 754 defines the result, within the
// manual's error where a card approximates.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "ptx_programs.hpp"

namespace cuvmm::test {
namespace {

class PtxFloats : public DriverContract {};

template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
template <class T>
using ExpectedFloat = std::function<T(T a, T b, T c)>;

template <class T>
T float_of(std::uint64_t bits) {
  return std::bit_cast<T>(static_cast<Bits<T>>(bits));
}

// 'T' stands for the type. A NaN result may be any NaN.
template <class T>
void expect_lines(std::string lines, const ExpectedFloat<T>& expected, double error = 0) {
  const std::string type = sizeof(T) == 4 ? "f32" : "f64";
  for (std::size_t at = lines.find('T'); at != std::string::npos; at = lines.find('T', at)) {
    lines.replace(at, 1, type);
  }
  SCOPED_TRACE(lines);
  const auto operands = float_operands(sizeof(T) * 8);
  const auto found = run_ptx({.operand_type = type, .result_type = type, .lines = lines}, operands);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const T a = float_of<T>(operands[i].a);
    const T b = float_of<T>(operands[i].b);
    const T c = float_of<T>(operands[i].c);
    const T wanted = expected(a, b, c);
    const T result = float_of<T>(found[i]);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(result)) << a << ' ' << b << ' ' << c << " gave " << result;
    } else if (error == 0) {
      ASSERT_EQ(std::bit_cast<Bits<T>>(result), std::bit_cast<Bits<T>>(wanted))
          << a << ' ' << b << ' ' << c << " gave " << result << " instead of " << wanted;
    } else if (std::isfinite(wanted)) {
      ASSERT_NEAR(result, wanted, error * std::max(1.0, std::fabs(static_cast<double>(wanted))))
          << a;
    }
  }
}

struct RoundingMode {
  const char* suffix;
  int host;
};
constexpr RoundingMode rounding_modes[] = {
    {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

// Volatile, so that the compiler does not evaluate it under another rounding mode.
template <class T, class Function>
T under(int mode, Function&& function) {
  std::fesetround(mode);
  volatile T result = function();
  std::fesetround(FE_TONEAREST);
  return result;
}

template <class T>
void expect_ieee() {
  for (const RoundingMode& mode : rounding_modes) {
    const std::string as = std::string{"."} + mode.suffix + ".T";
    const auto run = [&](const std::string& name, const std::string& operands, auto function) {
      expect_lines<T>(name + as + " %d, " + operands + ";", [&](T a, T b, T c) {
        volatile T va = a;
        volatile T vb = b;
        volatile T vc = c;
        return under<T>(mode.host, [&] { return function(va, vb, vc); });
      });
    };
    run("add", "%a, %b", [](T a, T b, T) { return a + b; });
    run("sub", "%a, %b", [](T a, T b, T) { return a - b; });
    run("mul", "%a, %b", [](T a, T b, T) { return a * b; });
    run("div", "%a, %b", [](T a, T b, T) { return a / b; });
    run("fma", "%a, %b, %c", [](T a, T b, T c) { return std::fma(a, b, c); });
    run("sqrt", "%a", [](T a, T, T) { return std::sqrt(a); });
    run("rcp", "%a", [](T a, T, T) { return T{1} / a; });
  }
}

TEST_F(PtxFloats, AreRoundedInEveryMode) {
  expect_ieee<float>();
  expect_ieee<double>();
}

float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value;
}

TEST_F(PtxFloats, SubnormalOnesAreFlushedWhereAskedFor) {
  expect_lines<float>("add.ftz.f32 %d, %a, %b;",
                      [](float a, float b, float) { return flushed(flushed(a) + flushed(b)); });
  expect_lines<float>("mul.rn.ftz.f32 %d, %a, %b;",
                      [](float a, float b, float) { return flushed(flushed(a) * flushed(b)); });
  expect_lines<float>("mul.f32 %d, %a, %b;", [](float a, float b, float) { return a * b; });
}

float into_one(float value) {
  return value > 0 ? (value < 1 ? value : 1.0F) : 0.0F;
}

TEST_F(PtxFloats, SaturateToOne) {
  expect_lines<float>("add.sat.f32 %d, %a, %b;",
                      [](float a, float b, float) { return into_one(a + b); });
  expect_lines<float>("fma.rn.sat.f32 %d, %a, %b, %c;",
                      [](float a, float b, float c) { return into_one(std::fma(a, b, c)); });
}

template <class T>
T smaller(T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

template <class T>
void expect_simple() {
  expect_lines<T>("min.T %d, %a, %b;", [](T a, T b, T) { return smaller(a, b); });
  expect_lines<T>("max.T %d, %a, %b;", [](T a, T b, T) { return -smaller(-a, -b); });
  expect_lines<T>("abs.T %d, %a;", [](T a, T, T) { return std::fabs(a); });
  expect_lines<T>("neg.T %d, %a;", [](T a, T, T) { return -a; });
  expect_lines<T>("copysign.T %d, %a, %b;", [](T a, T b, T) { return std::copysign(b, a); });
  expect_lines<T>("setp.lt.T %p, %a, %b; selp.T %d, %a, %c, %p;",
                  [](T a, T b, T c) { return a < b ? a : c; });
  expect_lines<T>("setp.ne.T %p, %a, %b; selp.T %d, %a, %c, %p;",
                  [](T a, T b, T c) { return a < b || a > b ? a : c; });
  expect_lines<T>("setp.neu.T %p, %a, %b; selp.T %d, %a, %c, %p;",
                  [](T a, T b, T c) { return a != b ? a : c; });
  expect_lines<T>("setp.geu.T %p, %a, %b; selp.T %d, %a, %c, %p;",
                  [](T a, T b, T c) { return !(a < b) ? a : c; });
  expect_lines<T>("setp.nan.T %p, %a, %b; selp.T %d, %b, %c, %p;",
                  [](T a, T b, T c) { return std::isnan(a) || std::isnan(b) ? b : c; });
  expect_lines<T>("setp.num.T %p, %a, %b; selp.T %d, %a, %c, %p;",
                  [](T a, T b, T c) { return std::isnan(a) || std::isnan(b) ? c : a; });
  expect_lines<T>("testp.finite.T %p, %a; selp.T %d, %a, %c, %p;",
                  [](T a, T, T c) { return std::isfinite(a) ? a : c; });
  expect_lines<T>("testp.subnormal.T %p, %a; selp.T %d, %a, %c, %p;",
                  [](T a, T, T c) { return std::fpclassify(a) == FP_SUBNORMAL ? a : c; });
  expect_lines<T>("cvt.rzi.T.T %d, %a;", [](T a, T, T) { return std::trunc(a); });
  expect_lines<T>("cvt.rni.T.T %d, %a;", [](T a, T, T) { return std::nearbyint(a); });
  expect_lines<T>("cvt.rmi.T.T %d, %a;", [](T a, T, T) { return std::floor(a); });
  expect_lines<T>("cvt.rpi.T.T %d, %a;", [](T a, T, T) { return std::ceil(a); });
}

TEST_F(PtxFloats, AreComparedAndRoundedToWholeNumbers) {
  expect_simple<float>();
  expect_simple<double>();
}

TEST_F(PtxFloats, ApproximateFunctionsAreWithinTheirError) {
  // Clamps the operands to the function's range.
  const std::string in_range = "min.f32 %a, %a, 0f41200000; max.f32 %a, %a, 0fC1200000;";
  const auto clamped = [](float a) {
    return std::isnan(a) ? 10.0F : std::fmax(std::fmin(a, 10.0F), -10.0F);
  };
  expect_lines<float>(
      in_range + "sin.approx.f32 %d, %a;",
      [&](float a, float, float) { return std::sin(clamped(a)); }, 1e-5);
  expect_lines<float>(
      in_range + "cos.approx.f32 %d, %a;",
      [&](float a, float, float) { return std::cos(clamped(a)); }, 1e-5);
  expect_lines<float>(
      in_range + "ex2.approx.f32 %d, %a;",
      [&](float a, float, float) { return std::exp2(clamped(a)); }, 1e-5);
  expect_lines<float>(
      in_range + "abs.f32 %a, %a; add.f32 %a, %a, 0f3F800000; lg2.approx.f32 %d, %a;",
      [&](float a, float, float) { return std::log2(std::fabs(clamped(a)) + 1); }, 1e-5);
  expect_lines<float>(
      in_range + "tanh.approx.f32 %d, %a;",
      [&](float a, float, float) { return std::tanh(clamped(a)); }, 1e-3);
  expect_lines<float>(
      in_range + "abs.f32 %a, %a; add.f32 %a, %a, 0f3F800000; rsqrt.approx.f32 %d, %a;",
      [&](float a, float, float) { return 1 / std::sqrt(std::fabs(clamped(a)) + 1); }, 1e-5);
}

// Converts from and to integers.
template <class From, class To>
void expect_conversion(const std::string& line, const std::string& from_type,
                       const std::string& to_type, const std::vector<PtxOperands>& operands,
                       const std::function<To(From)>& expected) {
  SCOPED_TRACE(line);
  const auto found =
      run_ptx({.operand_type = from_type, .result_type = to_type, .lines = line}, operands);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    From value{};
    std::memcpy(&value, &operands[i].a, sizeof value);
    const To wanted = expected(value);
    To result{};
    std::memcpy(&result, &found[i], sizeof result);
    std::uint64_t result_bits = 0;
    std::uint64_t wanted_bits = 0;
    std::memcpy(&result_bits, &result, sizeof result);
    std::memcpy(&wanted_bits, &wanted, sizeof wanted);
    ASSERT_EQ(result_bits, wanted_bits) << value << " gave " << result << " instead of " << wanted;
  }
}

// Which of them become NaN is up to the card.
std::vector<PtxOperands> without_nans(std::vector<PtxOperands> doubles) {
  std::erase_if(doubles,
                [](const PtxOperands& one) { return std::isnan(std::bit_cast<double>(one.a)); });
  return doubles;
}

template <class To, class From>
To saturated(From value) {
  if (std::isnan(value)) return sizeof(From) == 8 ? std::numeric_limits<To>::min() : 0;
  const long double whole = std::trunc(static_cast<long double>(value));
  if (whole >= static_cast<long double>(std::numeric_limits<To>::max()))
    return std::numeric_limits<To>::max();
  if (whole <= static_cast<long double>(std::numeric_limits<To>::min()))
    return std::numeric_limits<To>::min();
  return static_cast<To>(whole);
}

TEST_F(PtxFloats, ConvertToIntegersWithSaturation) {
  const auto floats = float_operands(32);
  const auto doubles = float_operands(64);
  expect_conversion<float, std::int32_t>("cvt.rzi.s32.f32 %d, %a;", "f32", "s32", floats,
                                         saturated<std::int32_t, float>);
  expect_conversion<float, std::uint32_t>("cvt.rzi.u32.f32 %d, %a;", "f32", "u32", floats,
                                          saturated<std::uint32_t, float>);
  expect_conversion<double, std::int32_t>("cvt.rzi.s32.f64 %d, %a;", "f64", "s32", doubles,
                                          saturated<std::int32_t, double>);
  expect_conversion<float, std::int32_t>(
      "cvt.rni.s32.f32 %d, %a;", "f32", "s32", floats,
      [](float a) { return saturated<std::int32_t>(std::nearbyint(a)); });
  const auto numbers = without_nans(doubles);
  expect_conversion<double, float>("cvt.rn.f32.f64 %d, %a;", "f64", "f32", numbers,
                                   [](double a) { return static_cast<float>(a); });
}

TEST_F(PtxFloats, ConvertFromIntegers) {
  expect_conversion<std::int32_t, float>("cvt.rn.f32.s32 %d, %a;", "s32", "f32",
                                         integer_operands(32),
                                         [](std::int32_t a) { return static_cast<float>(a); });
  expect_conversion<std::uint32_t, double>("cvt.rn.f64.u32 %d, %a;", "u32", "f64",
                                           integer_operands(32),
                                           [](std::uint32_t a) { return static_cast<double>(a); });
  expect_conversion<std::uint64_t, float>("cvt.rn.f32.u64 %d, %a;", "u64", "f32",
                                          integer_operands(64),
                                          [](std::uint64_t a) { return static_cast<float>(a); });
  expect_conversion<std::int64_t, double>("cvt.rn.f64.s64 %d, %a;", "s64", "f64",
                                          integer_operands(64),
                                          [](std::int64_t a) { return static_cast<double>(a); });
}

// A round trip through 16 bits: values that a half can represent are unchanged.
TEST_F(PtxFloats, HalvesAreRoundedToNearest) {
  std::vector<PtxOperands> operands;
  for (std::uint32_t bits = 0; bits < 0x7c00; bits += 7) operands.push_back({bits, 0, 0});
  const auto found = run_ptx(
      {.operand_type = "u16",
       .result_type = "u16",
       .lines = "mov.b16 %h, %a; cvt.f32.f16 %f, %h; cvt.rn.f16.f32 %h, %f; mov.b16 %d, %h;",
       .declarations = ".reg .b16 %h; .reg .f32 %f;\n"},
      operands);
  for (std::size_t i = 0; i < operands.size(); ++i) ASSERT_EQ(found[i], operands[i].a);
  expect_conversion<float, std::uint16_t>(
      "{ .reg .b16 %h; cvt.rn.f16.f32 %h, %a; mov.b16 %d, %h; }", "f32", "u16",
      {{std::bit_cast<std::uint32_t>(1.0F), 0, 0},
       {std::bit_cast<std::uint32_t>(1.00048828125F), 0, 0},  // half way: to even
       {std::bit_cast<std::uint32_t>(1.00146484375F), 0, 0},  // half way: to even, upward
       {std::bit_cast<std::uint32_t>(65519.0F), 0, 0},
       {std::bit_cast<std::uint32_t>(65520.0F), 0, 0},
       {std::bit_cast<std::uint32_t>(5.9604645e-8F), 0, 0}},
      [](float a) -> std::uint16_t {
        if (a == 1.0F || a == 1.00048828125F) return 0x3c00;
        if (a == 1.00146484375F) return 0x3c02;
        if (a == 65519.0F) return 0x7bff;
        return a == 65520.0F ? 0x7c00 : 1;
      });
}

}  // namespace
}  // namespace cuvmm::test
