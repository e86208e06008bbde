// SPDX-License-Identifier: Apache-2.0
// A node at one moment, as metrics and the live view show it. The service fills in leases and
// events; processes publish the rest, which is all there is without a service.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "node/decision.hpp"
#include "observe/time_histogram.hpp"
#include "share/figures.hpp"

namespace cuvmm::observe {

inline constexpr const char* host_name = "host";  // in place of a device's UUID

struct DeviceSample {
  std::string uuid;  // "GPU-…", or host_name
  int index = 0;     // as NVML counts devices, or without a service as processes do
  Size capacity = 0;
  std::optional<Size> leased;  // nothing: without a service
  std::optional<Size> foreign;

  bool is_host() const { return uuid == host_name; }
};

// What the service knows of one client at one place.
struct LeaseSample {
  Size leased = 0;
  Size guarantee = 0;
  Size limit = unlimited;
  Size waited_for = 0;
  std::uint64_t waits_us = 0;  // the request that has waited longest
  std::string waits_for;       // names of clients
};

struct HoldingSample {
  std::string device;  // its UUID
  std::optional<LeaseSample> lease;
  std::optional<share::DeviceFigures> figures;
};

// One arena, or a context's windows.
struct RegionSample {
  std::string device;  // its UUID
  share::RegionFigures figures;
};

// The time of its devices that a client had (docs/scheduling.md).
struct TimeSample {
  std::uint32_t cap = 100;      // percent
  std::uint64_t held_us = 0;    // while others competed for them
  std::uint64_t waited_us = 0;  // with work at hand
};

// What a client was granted, refused and asked for since it joined.
struct ClientTally {
  struct Reclaims {
    std::map<node::ReclaimEnd, std::uint64_t> ended;
    Size bytes = 0;
  };
  std::map<std::string, TimeHistogram> lease_waits;  // by device; of requests that had to wait
  std::map<std::pair<std::string, node::RefusalReason>, std::uint64_t> refusals;
  std::map<std::pair<std::string, node::ReclaimStep>, Reclaims> reclaims;
  std::uint64_t turns = 0;
  std::uint64_t turns_us = 0;
};

enum class ClientCondition : std::uint8_t { Running, Idle, Waiting, Turn, Paused, Stalled };
inline constexpr std::array<const char*, 6> condition_names{"running", "idle",   "waiting",
                                                            "turn",    "paused", "stalled"};

struct ClientSample {
  std::string label;  // names it in metrics: no two clients have the same
  int process = 0;
  unsigned user = 0;
  std::string group;
  std::uint32_t weight = 1;
  int priority = 0;
  ClientCondition condition = ClientCondition::Running;
  std::string program;    // the command's first word, without its folder
  std::string arguments;  // empty unless they are to be shown
  std::string mode;
  std::string version;
  bool answers = false;  // it publishes figures, and these are new
  std::vector<HoldingSample> holdings;
  std::vector<RegionSample> regions;  // those that hold the most first
  std::size_t regions_left_out = 0;
  std::optional<TimeSample> time;    // by the service
  std::optional<ClientTally> tally;  // by the service
  std::optional<Size> paused;        // on the host, while it is paused
  std::optional<share::PauseFigures> pauses;
  std::optional<share::PauseFigures> resumes;

  HoldingSample& at(const std::string& device);
};

enum class NodeEventKind : std::uint8_t {
  Joined,
  Left,
  Reclaimed,
  Refused,
  TurnBegan,
  TurnEnded,
  TurnsOff
};
inline constexpr std::array<const char*, 7> event_names{
    "joined", "left", "reclaimed", "refused", "turn began", "turn ended", "turns off"};

struct NodeEventSample {
  std::uint64_t number = 0;
  std::uint64_t ago_us = 0;
  NodeEventKind kind = NodeEventKind::Joined;
  std::string client;
  unsigned user = 0;    // of the client
  std::string other;    // on whose behalf; empty: nobody's
  std::string device;   // empty: all
  std::string cause;    // step, reason
  std::string outcome;  // empty: under way, or there is none
  Size asked = 0;
  Size bytes = 0;
  std::uint64_t took_us = 0;
  std::uint64_t times = 1;  // the same refusal again and again is one event
};

struct Snapshot {
  bool has_service = false;
  std::uint64_t up_us = 0;  // of the service
  std::vector<DeviceSample> devices;
  std::vector<ClientSample> clients;
  std::vector<NodeEventSample> events;  // the latest last
  std::size_t hidden_clients = 0;       // of users whom the viewer may not see

  DeviceSample& device(const std::string& uuid);
  ClientSample* client_of(int process);

  // Without the clients of other users, and without their names in what is left.
  void hide_others(unsigned user);
  // Gives each client without a label one that no other has.
  void label_clients();
};

const char* name_of(node::ReclaimStep step);
const char* name_of(node::ReclaimEnd end);
const char* name_of(node::RefusalReason reason);
// "GPU-…" as NVML writes it; empty where it is all zero.
std::string print_device_uuid(const std::array<std::uint8_t, 16>& uuid);

}  // namespace cuvmm::observe
