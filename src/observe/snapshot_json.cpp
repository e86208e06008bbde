// SPDX-License-Identifier: Apache-2.0
#include "observe/snapshot_json.hpp"

#include <nlohmann/json.hpp>

namespace cuvmm::observe {
namespace {

using nlohmann::json;

template <class Number>
json or_null(const std::optional<Number>& value) {
  return value ? json(*value) : json();
}

json limit_or_null(Size limit) {
  return limit == unlimited ? json() : json(limit);
}

json as_json(const DeviceSample& device) {
  return {{"uuid", device.uuid},
          {"host", device.is_host()},
          {"index", device.index},
          {"capacity_bytes", device.capacity},
          {"leased_bytes", or_null(device.leased)},
          {"foreign_bytes", or_null(device.foreign)}};
}

json as_json(const HoldingSample& holding) {
  json object = {{"device", holding.device}};
  if (const auto& lease = holding.lease) {
    object.update({{"leased_bytes", lease->leased},
                   {"guarantee_bytes", lease->guarantee},
                   {"limit_bytes", limit_or_null(lease->limit)},
                   {"waited_for_bytes", lease->waited_for},
                   {"waits_us", lease->waits_us},
                   {"waits_for", lease->waits_for}});
  }
  if (const auto& figures = holding.figures) {
    object.update({{"live_bytes", figures->requested_live},
                   {"cached_bytes", figures->cached},
                   {"physical_bytes", figures->physical},
                   {"spilled_bytes", figures->spilled},
                   {"spilled_hot_bytes", figures->spilled_hot},
                   {"own_limit_bytes", limit_or_null(figures->limit)},
                   {"moves", figures->moves},
                   {"moved_bytes", figures->moved},
                   {"placed_in_bytes", figures->placed_in},
                   {"placed_out_bytes", figures->placed_out},
                   {"refusals", figures->refusals}});
  }
  return object;
}

json as_json(const share::PauseFigures& pauses) {
  std::uint64_t count = 0;
  for (const std::uint64_t one : pauses.counts) count += one;
  return {{"count", count}, {"sum_us", pauses.sum_us}, {"bytes", pauses.bytes}};
}

json as_json(const ClientSample& client) {
  json object = {{"label", client.label},
                 {"process", client.process},
                 {"user", client.user},
                 {"group", client.group},
                 {"weight", client.weight},
                 {"priority", client.priority},
                 {"state", condition_names[static_cast<std::size_t>(client.condition)]},
                 {"program", client.program},
                 {"arguments", client.arguments},
                 {"mode", client.mode},
                 {"version", client.version},
                 {"answers", client.answers},
                 {"holdings", json::array()}};
  for (const HoldingSample& one : client.holdings) object["holdings"].push_back(as_json(one));
  object["paused_bytes"] = or_null(client.paused);
  object["off_devices"] = client.is_off_devices;
  if (client.pauses) object["pauses"] = as_json(*client.pauses);
  if (client.resumes) object["resumes"] = as_json(*client.resumes);
  if (const auto& time = client.time) {
    object["time"] = {
        {"cap_percent", time->cap}, {"held_us", time->held_us}, {"waited_us", time->waited_us}};
  }
  if (!client.tally) return object;
  object["turns"] = client.tally->turns;
  object["turns_us"] = client.tally->turns_us;
  std::uint64_t waits = 0;
  std::uint64_t waited_us = 0;
  for (const auto& [device, histogram] : client.tally->lease_waits) {
    waits += histogram.count();
    waited_us += histogram.sum_us();
  }
  object["waits"] = {{"count", waits}, {"sum_us", waited_us}};
  return object;
}

json as_json(const RegionSample& region) {
  const share::RegionFigures& now = region.figures;
  return {{"device", region.device},        {"what", now.what.data()},
          {"held_bytes", now.held},         {"used_bytes", now.used},
          {"cached_bytes", now.cached},     {"spilled_bytes", now.spilled},
          {"reserved_bytes", now.reserved}, {"blocks", now.blocks}};
}

json as_json(const NodeEventSample& event) {
  return {{"number", event.number},
          {"ago_us", event.ago_us},
          {"kind", event_names[static_cast<std::size_t>(event.kind)]},
          {"client", event.client},
          {"other", event.other},
          {"device", event.device},
          {"cause", event.cause},
          {"outcome", event.outcome},
          {"asked_bytes", event.asked},
          {"bytes", event.bytes},
          {"took_us", event.took_us},
          {"times", event.times}};
}

std::string on_one_line(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::string print_client_json(const Snapshot& snapshot, const std::string& label) {
  for (const ClientSample& client : snapshot.clients) {
    if (client.label != label) continue;
    json object = {{"schema", 1},
                   {"label", label},
                   {"regions", json::array()},
                   {"regions_left_out", client.regions_left_out}};
    for (const RegionSample& one : client.regions) object["regions"].push_back(as_json(one));
    return on_one_line(object);
  }
  return "";
}

std::string print_json(const Snapshot& snapshot) {
  json all = {{"schema", 1},
              {"service", snapshot.has_service},
              {"up_us", snapshot.up_us},
              {"hidden_clients", snapshot.hidden_clients},
              {"devices", json::array()},
              {"clients", json::array()},
              {"events", json::array()}};
  for (const auto& one : snapshot.devices) all["devices"].push_back(as_json(one));
  for (const auto& one : snapshot.clients) all["clients"].push_back(as_json(one));
  for (const auto& one : snapshot.events) all["events"].push_back(as_json(one));
  return on_one_line(all);
}

}  // namespace cuvmm::observe
