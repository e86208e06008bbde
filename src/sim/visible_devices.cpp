// SPDX-License-Identifier: Apache-2.0
#include "sim/visible_devices.hpp"

#include <algorithm>
#include <charconv>

#include "base/text.hpp"
#include "sim/device_identity.hpp"

namespace cuvmm::sim {
namespace {

// Ignores whatever follows the digits.
std::optional<int> numbered(std::string_view name, int count) {
  int number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc{} || number < 0 || number >= count) return std::nullopt;
  return number;
}

std::optional<int> identified(std::string_view name, int count, std::string_view card) {
  std::optional<int> found;
  for (int number = 0; number < count; ++number) {
    if (!std::string_view{uuid_text(device_uuid(card, number)).data()}.starts_with(name)) continue;
    if (found) return std::nullopt;
    found = number;
  }
  return found;
}

}  // namespace

std::optional<std::vector<int>> visible_devices(std::string_view wanted, int count,
                                                std::string_view card) {
  std::vector<int> visible;
  const bool are_uuids = without_outer_blanks(wanted).starts_with("GPU-");
  for (bool is_last = false; !is_last;) {
    const std::size_t comma = wanted.find(',');
    is_last = comma == std::string_view::npos;
    const std::string_view name = without_outer_blanks(wanted.substr(0, comma));
    if (!is_last) wanted.remove_prefix(comma + 1);
    if (are_uuids && !name.starts_with("GPU-")) break;
    const std::optional<int> number =
        are_uuids ? identified(name, count, card) : numbered(name, count);
    if (!number) break;
    if (std::find(visible.begin(), visible.end(), *number) != visible.end()) return std::nullopt;
    visible.push_back(*number);
  }
  return visible;
}

}  // namespace cuvmm::sim
