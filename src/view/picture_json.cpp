// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "view/picture.hpp"

namespace cuvmm::view {
namespace {

using nlohmann::json;

constexpr std::size_t most_parts = 64;

std::string base64(const std::vector<std::uint8_t>& bytes) {
  constexpr char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t j = 0; j < 3; ++j) three = three << 8 | (j < count ? bytes[i + j] : 0U);
    for (std::size_t j = 0; j < 4; ++j) {
      text += j <= count ? letters[three >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

json parts_of(const Picture& picture) {
  auto parts = json::array();
  if (picture.address_parts.size() > most_parts) return parts;
  for (const auto& part : picture.address_parts) {
    parts.push_back(
        {{"address", part.span.begin}, {"bytes", part.span.size()}, {"offset", part.offset}});
  }
  return parts;
}

json lanes_of(const Picture& picture) {
  auto lanes = json::array();
  for (const PictureLane& lane : picture.lanes) {
    lanes.push_back({{"name", lane.name}, {"operations", lane.operations}});
  }
  return lanes;
}

json flames_of(const Picture& picture) {
  auto flames = json::array();
  for (const FlameFrame& frame : picture.flames) {
    flames.push_back({{"name", frame.name},
                      {"caller", frame.caller},
                      {"at_peak", frame.at_peak},
                      {"at_end", frame.at_end},
                      {"allocated", frame.allocated}});
  }
  return flames;
}

json refusals_of(const Picture& picture) {
  auto refusals = json::array();
  for (const PictureRefusal& refusal : picture.refusals) {
    refusals.push_back({{"time_ns", refusal.time}, {"asked_bytes", refusal.asked}});
  }
  return refusals;
}

json last_limit_of(const Picture& picture) {
  if (picture.limits.empty() || !picture.limits.back().bytes) return nullptr;
  return *picture.limits.back().bytes;
}

json limits_of(const Picture& picture) {
  auto limits = json::array();
  for (const PictureLimit& limit : picture.limits) {
    limits.push_back(
        {{"time_ns", limit.time}, {"bytes", limit.bytes ? json(*limit.bytes) : json(nullptr)}});
  }
  return limits;
}

json as_json(const Picture& picture) {
  std::string device_name;
  for (const TraceDevice& device : picture.header.facts.devices) {
    if (device.ordinal == picture.device) device_name = device.name;
  }
  return {{"command", picture.header.command},
          {"process", picture.header.process},
          {"host", picture.header.host},
          {"mode", picture.header.mode},
          {"version", picture.header.library_version},
          {"note", picture.note},
          {"device", picture.device},
          {"device_count", picture.device_count},
          {"device_name", device_name},
          {"device_bytes", picture.device_bytes},
          {"limits", limits_of(picture)},
          {"limit_bytes", last_limit_of(picture)},
          {"events", picture.events},
          {"begin_ns", picture.begin},
          {"end_ns", picture.end},
          {"columns", picture.columns},
          {"rows", picture.rows},
          {"address_bytes", picture.address_bytes},
          {"address_parts", parts_of(picture)},
          {"address_part_count", picture.address_parts.size()},
          {"used", base64(picture.used)},
          {"mapped", base64(picture.mapped)},
          {"requested_bytes", picture.requested},
          {"mapped_bytes", picture.mapped_bytes},
          {"physical_bytes", picture.physical},
          {"spilled_bytes", picture.spilled},
          {"is_native", picture.is_native},
          {"requested_peak_bytes", picture.requested_peak},
          {"physical_peak_bytes", picture.physical_peak},
          {"spilled_peak_bytes", picture.spilled_peak},
          {"refusals", refusals_of(picture)},
          {"refusal_count", picture.refusal_count},
          {"largest_refusal_bytes", picture.largest_refusal},
          {"sample_columns", picture.sample_times},
          {"fragmentation", picture.fragmentation},
          {"rounding_waste", picture.rounding_waste},
          {"sizes", picture.sizes.counts()},
          {"lifetimes_us", picture.lifetimes.counts()},
          {"lasting_sizes", picture.lasting_sizes.counts()},
          {"lanes", lanes_of(picture)},
          {"lanes_are_clients", picture.lanes_are_clients},
          {"flames", flames_of(picture)}};
}

}  // namespace

std::string to_json(const std::vector<Picture>& pictures) {
  json all = {{"schema", 1}, {"pictures", json::array()}};
  for (const Picture& picture : pictures) all["pictures"].push_back(as_json(picture));
  // Names in a trace may contain arbitrary bytes.
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace cuvmm::view
