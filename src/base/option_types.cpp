// SPDX-License-Identifier: Apache-2.0
#include "base/option_types.hpp"

#include <algorithm>

namespace cuvmm {
namespace {

constexpr std::uint64_t day_in_us = 24ull * 3600 * 1'000'000;
constexpr Size least_alignment = 4 * KiB;
constexpr Size usual_stack_interval = 1 * MiB;
constexpr Size longest_stack_interval = 1 * TiB;
constexpr int most_devices = 1024;

// Microseconds per `unit`; 0 if it is not a unit.
std::uint64_t us_in_unit(std::string_view unit) {
  if (equal_in_any_case(unit, "us")) return 1;
  if (equal_in_any_case(unit, "ms")) return 1'000;
  if (equal_in_any_case(unit, "s")) return 1'000'000;
  if (equal_in_any_case(unit, "m")) return 60'000'000;
  if (equal_in_any_case(unit, "h")) return 3'600'000'000;
  return 0;
}

}  // namespace

std::optional<SizeLimit> OptionType<SizeLimit>::read(std::string_view text) {
  const auto limit = SizeLimit::parse(text);
  if (!limit) return {};
  return *limit;
}

std::optional<Bytes> OptionType<Bytes>::read(std::string_view text) {
  const auto size = parse_size(text);
  if (!size) return {};
  return Bytes{*size};
}

std::optional<StackSamples> OptionType<StackSamples>::read(std::string_view text) {
  text = without_outer_blanks(text);
  if (equal_in_any_case(text, "off")) return StackSamples{};
  if (equal_in_any_case(text, "on")) return StackSamples{usual_stack_interval};
  if (equal_in_any_case(text, "all")) return StackSamples{1};
  const auto size = parse_size(text);
  if (!size || *size == 0 || *size > longest_stack_interval) return {};
  return StackSamples{*size};
}

std::string OptionType<StackSamples>::print(StackSamples value) {
  if (value.interval == 0) return "off";
  if (value.interval == 1) return "all";
  return SizeLimit::of_bytes(value.interval).print();
}

std::optional<Alignment> OptionType<Alignment>::read(std::string_view text) {
  const auto size = parse_size(text);
  if (!size || !is_power_of_two(*size) || *size < least_alignment) return {};
  return Alignment{*size};
}

// A number needs its unit, except for 0: "100" could mean seconds or milliseconds.
std::optional<Duration> OptionType<Duration>::read(std::string_view text) {
  text = without_outer_blanks(text);
  const auto number = take_decimal(text);
  if (!number) return {};
  const std::string_view unit = without_outer_blanks(text);
  if (unit.empty()) {
    if (number->whole != 0 || number->fraction != 0) return {};
    return Duration{0};
  }
  const std::uint64_t in_unit = us_in_unit(unit);
  if (in_unit == 0 || number->whole > day_in_us / in_unit) return {};
  const std::uint64_t us = number->whole * in_unit + number->fraction * in_unit / Decimal::scale;
  if (us > day_in_us) return {};
  return Duration{static_cast<Duration::rep>(us)};
}

std::string OptionType<Duration>::print(Duration value) {
  const auto us = value.count();
  if (us == 0) return "0";
  if (us % 1'000'000 == 0) return std::to_string(us / 1'000'000) + "s";
  if (us % 1'000 == 0) return std::to_string(us / 1'000) + "ms";
  return std::to_string(us) + "us";
}

std::optional<DeviceList> OptionType<DeviceList>::read(std::string_view text) {
  DeviceList list;
  text = without_outer_blanks(text);
  if (text.empty()) return list;
  while (true) {
    const std::size_t comma = text.find(',');
    const auto device = read_integer(without_outer_blanks(text.substr(0, comma)));
    if (!device || *device < 0 || *device >= most_devices) return {};
    const int number = static_cast<int>(*device);
    if (std::find(list.devices.begin(), list.devices.end(), number) != list.devices.end())
      return {};
    list.devices.push_back(number);
    if (comma == std::string_view::npos) return list;
    text.remove_prefix(comma + 1);
  }
}

std::string OptionType<DeviceList>::print(const DeviceList& value) {
  std::string text;
  for (int device : value.devices) {
    if (!text.empty()) text += ",";
    text += std::to_string(device);
  }
  return text;
}

std::optional<DriverVersion> OptionType<DriverVersion>::read(std::string_view text) {
  text = without_outer_blanks(text);
  const auto major = take_whole_number(text);
  if (!major || *major > 999 || text.empty() || text.front() != '.') return {};
  text.remove_prefix(1);
  const auto minor = take_whole_number(text);
  if (!minor || *minor > 99 || !text.empty()) return {};
  return DriverVersion{static_cast<int>(*major * 1000 + *minor * 10)};
}

std::string OptionType<DriverVersion>::print(DriverVersion value) {
  return std::to_string(value / 1000) + "." + std::to_string(value % 1000 / 10);
}

}  // namespace cuvmm
