// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace cuvmm {

inline constexpr Size KiB = Size{1} << 10;
inline constexpr Size MiB = Size{1} << 20;
inline constexpr Size GiB = Size{1} << 30;
inline constexpr Size TiB = Size{1} << 40;
inline constexpr Size unlimited = ~Size{0};

// The driver's granularity on every card measured so far. At run time, ask granularity().
inline constexpr Size usual_granule = 2 * MiB;

constexpr bool is_power_of_two(Size n) {
  return n != 0 && (n & (n - 1)) == 0;
}
constexpr Size round_down(Size n, Size step) {
  return n / step * step;
}
constexpr bool is_multiple(Size n, Size step) {
  return n % step == 0;
}

// Addition that saturates at `unlimited`.
constexpr Size saturating_sum(Size a, Size b) {
  return a > unlimited - b ? unlimited : a + b;
}
template <class... More>
constexpr Size saturating_sum(Size a, Size b, More... more) {
  return saturating_sum(saturating_sum(a, b), more...);
}

// Rounds up to a multiple of `step`; 0 if the result does not fit.
constexpr Size round_up(Size n, Size step) {
  const Size rest = n % step;
  if (rest == 0) return n;
  const Size missing = step - rest;
  return n > unlimited - missing ? 0 : n + missing;
}

// "512", "64K", "16G", "1.5GiB", "2TB": binary units, any case, an optional fraction.
Result<Size> parse_size(std::string_view text);

// For display, rounded to three significant digits: "1.50 GiB", "512 B", "unlimited".
std::string print_size(Size bytes);

// A limit as a user writes it: bytes ("16G") or a share of the total ("80%").
class SizeLimit {
 public:
  static Result<SizeLimit> parse(std::string_view text);
  static constexpr SizeLimit none() { return SizeLimit{unlimited, 0}; }
  static constexpr SizeLimit of_bytes(Size bytes) { return SizeLimit{bytes, 0}; }

  // The limit in bytes, given a total of `whole` bytes.
  Size of(Size whole) const;
  bool is_none() const { return bytes_ == unlimited && share_ == 0; }
  // The written form: "16G", "80%", "none". Parses back to the same limit.
  std::string print() const;
  bool operator==(const SizeLimit&) const = default;

 private:
  constexpr SizeLimit(Size bytes, std::uint32_t share) : bytes_(bytes), share_(share) {}
  Size bytes_;
  std::uint32_t share_;  // in millionths; 0: bytes_ counts
};

}  // namespace cuvmm
