// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string_view>

namespace cuvmm::sim {

inline constexpr const char* device_name = "cuvmm simulated device";

using DeviceUuid = std::array<std::uint8_t, 16>;

// The same in all processes that share a card, and different for each card. `card` is empty if the
// device is not shared.
inline DeviceUuid device_uuid(std::string_view card, int ordinal) {
  constexpr std::string_view text = "cuvmm-simulated";
  DeviceUuid uuid{};
  for (std::size_t i = 0; i < text.size(); ++i) uuid[i] = static_cast<std::uint8_t>(text[i]);
  uuid[15] = static_cast<std::uint8_t>(ordinal + 1);
  if (card.empty()) return uuid;
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char letter : card) {
    hash = (hash ^ static_cast<std::uint8_t>(letter)) * 0x100000001b3;
  }
  for (std::size_t i = 0; i < 8; ++i) {
    uuid[6 + i] = static_cast<std::uint8_t>(hash >> (8 * i));
  }
  return uuid;
}

// "GPU-…", as NVML writes it, with a null at the end.
inline std::array<char, 41> uuid_text(const DeviceUuid& uuid) {
  std::array<char, 41> text{'G', 'P', 'U', '-'};
  std::size_t at = 4;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text[at++] = '-';
    std::snprintf(&text[at], 3, "%02x", uuid[i]);
    at += 2;
  }
  return text;
}

}  // namespace cuvmm::sim
