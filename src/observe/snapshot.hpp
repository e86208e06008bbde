// SPDX-License-Identifier: Apache-2.0
// The node's state at one moment, for metrics and the live view. The service fills in leases and
// events; processes publish the rest. Without a service, there is only the rest.
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
  int index = 0;     // NVML's index, or without a service the processes' ordinal
  Size capacity = 0;
  std::optional<Size> leased;  // nothing without a service
  std::optional<Size> foreign;

  bool is_host() const { return uuid == host_name; }
};

// The service's view of one client at one place.
struct LeaseSample {
  Size leased = 0;
  Size guarantee = 0;
  Size limit = unlimited;
  Size waited_for = 0;
  std::uint64_t waits_us = 0;  // the longest wait of its pending requests
  std::string waits_for;       // names of the clients it waits for
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

// A client's time on its devices (docs/scheduling.md).
struct TimeSample {
  std::uint32_t cap = 100;      // percent
  std::uint64_t held_us = 0;    // while others competed for them
  std::uint64_t waited_us = 0;  // with work at hand
};

// Counts of grants, refusals and reclaim requests since the client joined.
struct ClientTally {
  struct Reclaims {
    std::map<node::ReclaimEnd, std::uint64_t> ended;
    Size bytes = 0;
  };
  std::map<std::string, TimeHistogram> lease_waits;  // by device; only requests that had to wait
  std::map<std::pair<std::string, node::RefusalReason>, std::uint64_t> refusals;
  std::map<std::pair<std::string, node::ReclaimStep>, Reclaims> reclaims;
  std::uint64_t turns = 0;
  std::uint64_t turns_us = 0;
  struct Attempts {
    std::uint64_t done = 0;
    std::uint64_t failed = 0;
  };
  Attempts departures;  // from its devices, with its contexts
  Attempts returns;     // to them
};

enum class ClientCondition : std::uint8_t { Running, Idle, Waiting, Turn, Paused, Stalled };
inline constexpr std::array<const char*, 6> condition_names{"running", "idle",   "waiting",
                                                            "turn",    "paused", "stalled"};

struct ClientSample {
  std::string label;  // a unique name for metrics
  int process = 0;
  unsigned user = 0;
  std::string group;
  std::uint32_t weight = 1;
  int priority = 0;
  ClientCondition condition = ClientCondition::Running;
  std::string program;    // the command's first word, without its directory
  std::string arguments;  // empty unless they may be shown
  std::string mode;
  std::string version;
  bool answers = false;  // it publishes figures, and they are current
  std::vector<HoldingSample> holdings;
  std::vector<RegionSample> regions;  // largest first
  std::size_t regions_left_out = 0;
  std::optional<TimeSample> time;    // from the service
  std::optional<ClientTally> tally;  // from the service
  std::optional<Size> paused;        // bytes on the host while it is paused
  bool is_off_devices = false;       // while it is paused: its contexts too
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
  TurnsOff,
  LeftDevices,
  ReturnedToDevices
};
inline constexpr std::array<const char*, 9> event_names{
    "joined",    "left",         "reclaimed",          "refused", "turn began", "turn ended",
    "turns off", "left devices", "returned to devices"};

struct NodeEventSample {
  std::uint64_t number = 0;
  std::uint64_t ago_us = 0;
  NodeEventKind kind = NodeEventKind::Joined;
  std::string client;
  unsigned user = 0;    // the client's user
  std::string other;    // the client on whose behalf, if any
  std::string device;   // empty: all
  std::string cause;    // a reclaim step or a refusal's reason
  std::string outcome;  // empty: in progress, or none
  Size asked = 0;
  Size bytes = 0;
  std::uint64_t took_us = 0;
  std::uint64_t times = 1;  // repetitions of a refusal count in one event
};

struct Snapshot {
  bool has_service = false;
  std::uint64_t up_us = 0;  // the service's uptime
  std::vector<DeviceSample> devices;
  std::vector<ClientSample> clients;
  std::vector<NodeEventSample> events;  // latest last
  std::size_t hidden_clients = 0;       // of users that the viewer may not see

  DeviceSample& device(const std::string& uuid);
  ClientSample* client_of(int process);

  // Removes other users' clients, and their names from everything else.
  void hide_others(unsigned user);
  // Gives each client without a label a unique one.
  void label_clients();
};

const char* name_of(node::ReclaimStep step);
const char* name_of(node::ReclaimEnd end);
const char* name_of(node::RefusalReason reason);
// "GPU-…" as NVML writes it; empty if all bytes are zero.
std::string print_device_uuid(const std::array<std::uint8_t, 16>& uuid);

}  // namespace cuvmm::observe
