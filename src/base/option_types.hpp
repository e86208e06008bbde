// SPDX-License-Identifier: Apache-2.0
// The types of option values. Each type defines how a value is read, how it is printed (so that it
// reads back as the same value), and which values are allowed. An option has its default's type.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/clock.hpp"
#include "base/size.hpp"
#include "base/text.hpp"

namespace cuvmm {

// The names of an enum class's values, by number. An enum with names can be an option.
template <class Enum>
inline constexpr std::nullptr_t choice_names = nullptr;

template <class T>
concept Choice = std::is_enum_v<T> && requires {
  choice_names<T>.size();
};

// A whole number within two bounds.
template <int Least, int Most>
struct Bounded {
  int value = Least;
  constexpr operator int() const { return value; }
};

// An amount of memory, not a share: "8G".
struct Bytes {
  Size value = 0;
  constexpr operator Size() const { return value; }
};

// How often a trace records the call stack of an allocation: "off", "on", "all", "256K".
struct StackSamples {
  Size interval = 0;  // bytes for which there is one stack on average; 0: none, 1: every allocation
  constexpr operator Size() const { return interval; }
};

// An amount of memory that is a power of two and at least 4 KiB, the host's page size: "2M".
struct Alignment {
  Size value = 0;
  constexpr operator Size() const { return value; }
};

// Device numbers: "1,2".
struct DeviceList {
  std::vector<int> devices;
  bool operator==(const DeviceList&) const = default;
};

// The CUDA version of a driver, encoded as by cuDriverGetVersion: 13000 is "13.0".
struct DriverVersion {
  int value = 0;
  constexpr operator int() const { return value; }
};

template <class T>
struct OptionType;

template <>
struct OptionType<std::string> {
  static std::optional<std::string> read(std::string_view text) { return std::string(text); }
  static std::string print(const std::string& value) { return value; }
  static std::string allowed() { return "any text"; }
};

template <>
struct OptionType<SizeLimit> {
  static std::optional<SizeLimit> read(std::string_view text);
  static std::string print(const SizeLimit& value) { return value.print(); }
  static std::string allowed() { return "a size (16G), a share (80%), or none"; }
};

template <>
struct OptionType<Bytes> {
  static std::optional<Bytes> read(std::string_view text);
  static std::string print(Bytes value) { return SizeLimit::of_bytes(value).print(); }
  static std::string allowed() { return "a size (16G)"; }
};

template <>
struct OptionType<StackSamples> {
  static std::optional<StackSamples> read(std::string_view text);
  static std::string print(StackSamples value);
  static std::string allowed() { return "off, on, all, or a size (256K)"; }
};

template <>
struct OptionType<Alignment> {
  static std::optional<Alignment> read(std::string_view text);
  static std::string print(Alignment value) { return SizeLimit::of_bytes(value).print(); }
  static std::string allowed() { return "a power of two from 4K up (2M)"; }
};

template <>
struct OptionType<Duration> {
  static std::optional<Duration> read(std::string_view text);
  static std::string print(Duration value);
  static std::string allowed() { return "a time with a unit, up to 1 day (10m, 1s, 250ms, 50us)"; }
};

template <>
struct OptionType<DeviceList> {
  static std::optional<DeviceList> read(std::string_view text);
  static std::string print(const DeviceList& value);
  static std::string allowed() { return "device numbers (0,1), each once"; }
};

template <>
struct OptionType<DriverVersion> {
  static std::optional<DriverVersion> read(std::string_view text);
  static std::string print(DriverVersion value);
  static std::string allowed() { return "a CUDA version (13.0)"; }
};

template <int Least, int Most>
struct OptionType<Bounded<Least, Most>> {
  static std::optional<Bounded<Least, Most>> read(std::string_view text) {
    const auto number = read_integer(without_outer_blanks(text));
    if (!number || *number < Least || *number > Most) return {};
    return Bounded<Least, Most>{static_cast<int>(*number)};
  }
  static std::string print(Bounded<Least, Most> value) { return std::to_string(value.value); }
  static std::string allowed() {
    return "a whole number from " + std::to_string(Least) + " to " + std::to_string(Most);
  }
};

template <Choice Enum>
struct OptionType<Enum> {
  static std::optional<Enum> read(std::string_view text) {
    text = without_outer_blanks(text);
    for (std::size_t i = 0; i < choice_names<Enum>.size(); ++i) {
      if (equal_in_any_case(text, choice_names<Enum>[i])) return static_cast<Enum>(i);
    }
    return {};
  }
  static std::string print(Enum value) {
    return std::string(choice_names<Enum>[static_cast<std::size_t>(value)]);
  }
  static std::string allowed() {
    std::string names;
    for (std::string_view name : choice_names<Enum>) {
      if (!names.empty()) names += ", ";
      names += name;
    }
    return names;
  }
};

}  // namespace cuvmm
