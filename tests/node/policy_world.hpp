// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "node/policy.hpp"

namespace cuvmm::test {

using namespace node;

inline constexpr PlaceId card = 0;
inline constexpr PlaceId other_card = 1;
inline constexpr PlaceId host = 9;
inline constexpr Microseconds ms = 1000;
inline constexpr Microseconds second = 1'000'000;

ClientTerms terms(Size guarantee = 0, int priority = 0, const std::string& group = {});

// A policy for two cards of 100 GiB and a host of 200, and its decisions.
class PolicyWorld {
 public:
  explicit PolicyWorld(const PolicyTimes& times = {});

  // Each call returns the decisions that it caused; all() keeps them too.
  const Decisions& tell(const NodeEvent& event);
  const Decisions& after(Microseconds time) {
    now_ += time;
    return tell(TimePassed{});
  }

  ClientId come(const ClientTerms& with = terms(), const std::map<PlaceId, Size>& held = {});
  // Whether the request is granted at once.
  bool lease(ClientId client, Size gib, PlaceId place = card);
  RequestId ask(ClientId client, Size gib, PlaceId place = card);
  void report(ClientId client, Size cache_gib, Size cold_gib, bool is_idle, PlaceId place = card);
  void give_back(ClientId client, Size gib, PlaceId place = card);
  // Does what the request asks of the client.
  void apply(const ReclaimRequested& request);
  void answer(const ReclaimRequested& request, ReclaimOutcome outcome, Size returned_gib = 0);

  bool is_granted(RequestId request) const;
  const LeaseRefused* refusal(RequestId request) const;
  // The requests that the client has not answered yet.
  std::vector<ReclaimRequested> requests(ClientId client) const;
  ReclaimRequested request(ClientId client) const;  // the only one
  template <class Wanted>
  std::vector<Wanted> all() const {
    std::vector<Wanted> found;
    for (const Decision& decision : all_) {
      if (const auto* wanted = std::get_if<Wanted>(&decision)) found.push_back(*wanted);
    }
    return found;
  }

  Size leased(ClientId client, PlaceId place = card) const {
    return policy.books().find_client(client)->leased(place);
  }
  bool has_turn(ClientId client) const {
    return policy.turns().has_turn(policy.books().find_client(client)->group);
  }
  Microseconds now() const { return now_; }

  NodePolicy policy;

 private:
  Microseconds now_ = 1;
  ClientId last_client_ = 0;
  RequestId last_request_ = 0;
  Decisions last_;
  Decisions all_;
};

}  // namespace cuvmm::test
