// SPDX-License-Identifier: Apache-2.0
#include "replay/measured_card.hpp"

#include <algorithm>
#include <iterator>
#include <span>

namespace cuvmm::replay {
namespace {

struct Cost {
  Size bytes;
  double microseconds;
};

constexpr Cost allocate[] = {{2 * MiB, 30}, {GiB, 122}, {16 * GiB, 975}};
constexpr Cost free[] = {{2 * MiB, 27}, {GiB, 314}, {16 * GiB, 6080}};
constexpr Cost create[] = {{2 * MiB, 9.8}, {GiB, 50}};
constexpr Cost map_and_access[] = {
    {16 * MiB, 25}, {32 * MiB, 23.1}, {64 * MiB, 25}, {128 * MiB, 29}, {GiB, 88}};
constexpr Cost unmap[] = {{16 * MiB, 18}, {GiB, 40}};
constexpr Cost release[] = {{0, 9}, {GiB, 360}};

std::span<const Cost> costs_of(CardCall call) {
  switch (call) {
    case CardCall::Allocate:
      return allocate;
    case CardCall::Free:
      return free;
    case CardCall::Create:
      return create;
    case CardCall::MapAndAccess:
      return map_and_access;
    case CardCall::Unmap:
      return unmap;
    case CardCall::Release:
      return release;
  }
  return {};
}

}  // namespace

double microseconds_of(CardCall call, Size bytes) {
  const auto costs = costs_of(call);
  const auto above = std::find_if(costs.begin(), costs.end(),
                                  [&](const Cost& cost) { return cost.bytes >= bytes; });
  if (above == costs.begin()) return above->microseconds;
  const Cost& below = *std::prev(above);
  if (above == costs.end()) return below.microseconds * (double(bytes) / double(below.bytes));
  const double share = double(bytes - below.bytes) / double(above->bytes - below.bytes);
  return below.microseconds + share * (above->microseconds - below.microseconds);
}

}  // namespace cuvmm::replay
