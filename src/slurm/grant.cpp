// SPDX-License-Identifier: Apache-2.0
#include "slurm/grant.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

namespace cuvmm::slurm {
namespace {

// Slurm writes large counts with a suffix: 4K is 4096.
std::optional<std::uint64_t> read_count(std::string_view text) {
  std::uint64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, count);
  if (problem != std::errc{}) return {};
  if (rest == end) return count;
  constexpr std::string_view letters = "KMGT";
  const auto power =
      letters.find(static_cast<char>(std::toupper(static_cast<unsigned char>(*rest))));
  if (rest + 1 != end || power == std::string_view::npos) return {};
  const unsigned shift = 10 * (static_cast<unsigned>(power) + 1);
  if (count > std::numeric_limits<std::uint64_t>::max() >> shift) return {};
  return count << shift;
}

// The count in "gpumem:gpu1(CNT:4096)", the format of a job's details.
std::optional<std::uint64_t> count_in_brackets(std::string_view one) {
  constexpr std::string_view before = "(CNT:";
  const std::size_t begin = one.find(before);
  if (begin == std::string_view::npos || !one.ends_with(')')) return {};
  one.remove_prefix(begin + before.size());
  one.remove_suffix(1);
  return read_count(one);
}

// Reads "gpumem:4096", "gpumem:gpu1:4096" or "gres/gpumem=4096". Returns nothing for other
// resources.
std::optional<SlurmGrant> read_one(std::string_view resource, std::string_view one) {
  const auto counted = count_in_brackets(one);
  one = one.substr(0, one.find('('));
  for (const std::string_view before : {"gres:", "gres/"}) {
    if (one.starts_with(before)) one.remove_prefix(before.size());
  }
  if (!one.starts_with(resource)) return {};
  one.remove_prefix(resource.size());
  if (one.empty()) return SlurmGrant{.units = counted.value_or(1), .type = {}};
  if (one.front() != ':' && one.front() != '=') return {};
  one.remove_prefix(1);
  if (counted) return SlurmGrant{.units = *counted, .type = std::string{one}};
  const std::size_t last = one.find_last_of(":=");
  const bool has_type = last != std::string_view::npos;
  const auto count = read_count(has_type ? one.substr(last + 1) : one);
  if (!count) return SlurmGrant{.units = 1, .type = std::string{one}};  // a type alone is one unit
  return SlurmGrant{.units = *count, .type = std::string{has_type ? one.substr(0, last) : ""}};
}

}  // namespace

std::optional<SlurmGrant> granted_of(std::string_view resource, std::string_view list) {
  std::optional<SlurmGrant> sum;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= list.size(); ++at) {
    const char letter = at < list.size() ? list[at] : ',';
    if (letter == '(') ++depth;
    if (letter == ')') --depth;
    if ((letter != ',' && letter != ';') || (depth > 0 && at < list.size())) continue;
    const auto one = read_one(resource, list.substr(begin, at - begin));
    begin = at + 1;
    if (!one) continue;
    if (sum && sum->type != one->type) sum->type.clear();
    if (!sum) {
      sum = one;
    } else {
      sum->units = saturating_sum(sum->units, one->units);
    }
  }
  return sum;
}

Size limit_of_task(const SlurmGrant& grant, Size unit, std::uint32_t tasks) {
  if (unit == 0) return 0;
  const Size all = grant.units > unlimited / unit ? unlimited : grant.units * unit;
  return all / std::max<std::uint32_t>(tasks, 1);
}

std::optional<int> device_of(const SlurmGrant& grant) {
  constexpr std::string_view before = "gpu";
  std::string_view type = grant.type;
  if (!type.starts_with(before)) return {};
  type.remove_prefix(before.size());
  int device = 0;
  const auto [rest, problem] = std::from_chars(type.data(), type.data() + type.size(), device);
  if (problem != std::errc{} || rest != type.data() + type.size() || device < 0) return {};
  return device;
}

}  // namespace cuvmm::slurm
