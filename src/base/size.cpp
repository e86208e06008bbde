// SPDX-License-Identifier: Apache-2.0
#include "base/size.hpp"

#include <optional>

#include "base/text.hpp"

namespace cuvmm {
namespace {

constexpr std::string_view unit_letters = "BKMGTPE";  // each 1024 times the previous

// The shift for a unit: 10 for "K", "KB" and "KiB", 0 for "B" and the empty string.
std::optional<unsigned> shift_of_unit(std::string_view unit) {
  if (unit.empty() || equal_in_any_case(unit, "B")) return 0;
  const std::size_t power = unit_letters.find(upper(unit.front()), 1);
  if (power == std::string_view::npos) return {};
  unit.remove_prefix(1);
  if (!unit.empty() && !equal_in_any_case(unit, "B") && !equal_in_any_case(unit, "iB")) return {};
  return static_cast<unsigned>(10 * power);
}

Error not_a_size(const char* why) {
  return Error::invalid("read size", why);
}

// The shortest text that parse_size reads back as the same number: "2M", "1536", "8G".
std::string exact_text(Size bytes) {
  std::size_t power = 0;
  while (bytes != 0 && bytes % 1024 == 0 && power + 1 < unit_letters.size()) {
    bytes /= 1024;
    ++power;
  }
  std::string text = std::to_string(bytes);
  if (power > 0) text += unit_letters[power];
  return text;
}

}  // namespace

Result<Size> parse_size(std::string_view text) {
  text = without_outer_blanks(text);
  if (text.empty()) return not_a_size("the value is empty");
  const auto number = take_decimal(text);
  if (!number) return not_a_size("not a number, or too large");
  const auto shift = shift_of_unit(without_outer_blanks(text));
  if (!shift) return not_a_size("not a unit: B, K, M, G, T, P or E");
  if (*shift == 0 && number->fraction != 0) return not_a_size("a fraction of a byte");
  if (number->whole > unlimited >> *shift) return not_a_size("too large");

  __extension__ using Wide = unsigned __int128;
  const Size part = static_cast<Size>((Wide{number->fraction} << *shift) / Decimal::scale);
  return (number->whole << *shift) + part;  // the fraction is less than one unit, so the sum fits
}

std::string print_size(Size bytes) {
  if (bytes == unlimited) return "unlimited";
  if (bytes < KiB) return std::to_string(bytes) + " B";

  unsigned power = 1;
  while (power + 1 < unit_letters.size() && bytes >> (10 * (power + 1)) != 0) ++power;
  const Size unit = Size{1} << (10 * power);
  const Size whole = bytes / unit;
  const unsigned decimals = whole < 10 ? 2 : whole < 100 ? 1 : 0;
  const Size scale = decimals == 2 ? 100 : decimals == 1 ? 10 : 1;

  __extension__ using Wide = unsigned __int128;
  const Size scaled = static_cast<Size>((Wide{bytes} * scale + unit / 2) / unit);
  std::string text = std::to_string(scaled / scale);
  if (decimals > 0) {
    const std::string digits = std::to_string(scaled % scale);
    text += "." + std::string(decimals - digits.size(), '0') + digits;
  }
  return text + " " + unit_letters[power] + "iB";
}

Result<SizeLimit> SizeLimit::parse(std::string_view text) {
  text = without_outer_blanks(text);
  if (equal_in_any_case(text, "none") || equal_in_any_case(text, "unlimited")) return none();
  if (text.empty() || text.back() != '%') {
    const Size bytes = TRY(parse_size(text));
    return of_bytes(bytes);
  }
  const auto number = take_decimal(text);
  if (!number || text != "%") return not_a_size("not a share: a number before one %");
  if (number->whole > 100 || (number->whole == 100 && number->fraction != 0)) {
    return not_a_size("a share of more than 100%");
  }
  const Size millionths = number->whole * 10'000 + number->fraction / (Decimal::scale / 10'000);
  if (millionths == 0) return of_bytes(0);
  return SizeLimit{0, static_cast<std::uint32_t>(millionths)};
}

Size SizeLimit::of(Size whole) const {
  if (share_ == 0) return bytes_;
  __extension__ using Wide = unsigned __int128;
  return static_cast<Size>(Wide{whole} * share_ / 1'000'000);
}

std::string SizeLimit::print() const {
  if (is_none()) return "none";
  if (share_ == 0) return exact_text(bytes_);
  std::string text = std::to_string(share_ / 10'000);
  if (const std::uint32_t rest = share_ % 10'000; rest != 0) {
    const std::string digits = std::to_string(rest);
    text += "." + std::string(4 - digits.size(), '0') + digits;
    while (text.back() == '0') text.pop_back();
  }
  return text + "%";
}

}  // namespace cuvmm
