// SPDX-License-Identifier: Apache-2.0
#include "cli/replay_request.hpp"

#include "base/text.hpp"

namespace cuvmm::cli {

Result<ReplayLimit> ReplayLimit::parse(std::string_view text) {
  constexpr std::uint64_t most = 1'000'000;
  constexpr const char* allowed = "allowed: a size (16G), or a multiple of the peak (1.02x)";
  ReplayLimit limit;
  if (text.empty() || upper(text.back()) != 'X') {
    const auto size = parse_size(text);
    if (!size) return Error::invalid("read limit", allowed);
    limit.bytes_ = *size;
    if (limit.bytes_ < usual_granule)
      return Error::invalid("read limit", "the limit must be at least 2 MiB");
    return limit;
  }
  std::string_view rest = text;
  const auto number = take_decimal(rest);
  if (!number || rest.size() != 1) return Error::invalid("read limit", allowed);
  if (number->whole > most) return Error::invalid("read limit", "too large");
  limit.billionths_ = number->whole * Decimal::scale + number->fraction;
  if (limit.billionths_ == 0) return Error::invalid("read limit", "the limit must be more than 0");
  return limit;
}

Size ReplayLimit::of(Size live_peak) const {
  if (billionths_ == 0) return bytes_;
  __extension__ using Wide = unsigned __int128;
  const Wide bytes = Wide{live_peak} * billionths_ / Decimal::scale;
  return bytes > unlimited - 1 ? unlimited - 1 : static_cast<Size>(bytes);
}

}  // namespace cuvmm::cli
