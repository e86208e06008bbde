// SPDX-License-Identifier: Apache-2.0
#include "observe/snapshot.hpp"
#include "base/printable.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

namespace cuvmm::observe {

HoldingSample& ClientSample::at(const std::string& device) {
  for (HoldingSample& one : holdings) {
    if (one.device == device) return one;
  }
  return holdings.emplace_back(HoldingSample{.device = device});
}

DeviceSample& Snapshot::device(const std::string& uuid) {
  for (DeviceSample& one : devices) {
    if (one.uuid == uuid) return one;
  }
  return devices.emplace_back(DeviceSample{.uuid = uuid});
}

ClientSample* Snapshot::client_of(int process) {
  for (ClientSample& one : clients) {
    if (one.process == process) return &one;
  }
  return nullptr;
}

void Snapshot::hide_others(unsigned user) {
  constexpr const char* somebody = "(another user)";
  std::set<std::string> visible;
  for (const ClientSample& one : clients) {
    if (one.user == user) visible.insert(one.label);
  }
  const auto hide = [&](std::string& name) {
    if (!name.empty() && !visible.contains(name)) name = somebody;
  };
  hidden_clients = std::erase_if(clients, [&](const auto& one) { return one.user != user; });
  std::erase_if(events, [&](const auto& one) { return one.user != user; });
  for (NodeEventSample& one : events) hide(one.other);
  for (ClientSample& client : clients) {
    for (HoldingSample& one : client.holdings) {
      if (one.lease) hide(one.lease->waits_for);
    }
  }
}

void Snapshot::label_clients() {
  std::set<std::string> taken;
  for (const ClientSample& one : clients) {
    if (!one.label.empty()) taken.insert(one.label);
  }
  for (ClientSample& one : clients) {
    if (!one.label.empty()) continue;
    one.label = printable(one.program) + "[" + std::to_string(one.process) + "]";
    while (!taken.insert(one.label).second) one.label += "'";
  }
}

const char* name_of(node::ReclaimStep step) {
  constexpr std::array names{"cache", "cold", "pause"};
  return names[static_cast<std::size_t>(step)];
}

const char* name_of(node::ReclaimEnd end) {
  constexpr std::array names{"applied", "refused", "expired", "gone"};
  return names[static_cast<std::size_t>(end)];
}

const char* name_of(node::RefusalReason reason) {
  constexpr std::array names{"unknown_place", "limit",     "too_many",      "capacity",
                             "not_returned",  "turns_off", "took_too_long", "not_at_once"};
  return names[static_cast<std::size_t>(reason)];
}

std::string print_device_uuid(const std::array<std::uint8_t, 16>& uuid) {
  if (uuid == std::array<std::uint8_t, 16>{}) return "";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", uuid[i]);
    text += digits.data();
  }
  return text;
}

}  // namespace cuvmm::observe
