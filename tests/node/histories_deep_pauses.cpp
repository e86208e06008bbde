// SPDX-License-Identifier: Apache-2.0
// Clients of random histories that leave their devices and return.
#include <algorithm>
#include <utility>

#include "histories.hpp"

namespace cuvmm::test {

// A client reports at any time, also while a helper acts on it.
void NodeHistory::report_pause() {
  const auto client = any_client();
  KnownClient& known = client->second;
  const bool is_away = known.stay != KnownClient::Stay::On;
  const bool was_quiet = known.is_paused && !known.has_held_calls;
  known.is_paused = is_away || one_in(2);
  known.has_held_calls = known.is_paused && one_in(3);
  if (!was_quiet || known.has_held_calls) known.quiet_since = now_;
  // A command may bring a client back that no helper is about to bring back.
  if (known.stay == KnownClient::Stay::Off && one_in(20)) {
    known.stay = KnownClient::Stay::On;
    if (known.keeps_room) have_arrived(known.contexts);
    known.keeps_room = false;
    known.is_paused = known.has_held_calls = false;
    known.contexts.clear();
  }
  tell(PresenceReported{.client = client->first,
                        .is_paused = known.is_paused,
                        .has_held_calls = known.has_held_calls,
                        .is_off_devices = known.stay == KnownClient::Stay::Off ||
                                          known.stay == KnownClient::Stay::Returning,
                        .contexts = known.contexts});
}

void NodeHistory::take_note(const LeaveRequested& leaving) {
  ++departures_;
  const auto client = clients_.find(leaving.client);
  ASSERT_NE(client, clients_.end());
  KnownClient& known = client->second;
  EXPECT_EQ(known.stay, KnownClient::Stay::On);
  EXPECT_TRUE(known.is_paused && !known.has_held_calls && known.waiting.empty()) << "it is awaited";
  EXPECT_TRUE(known.joined.empty()) << "it shares memory";
  ASSERT_TRUE(known.terms.deep_pause_after.has_value());
  EXPECT_GE(now_, known.quiet_since + *known.terms.deep_pause_after) << "too early";
  known.stay = KnownClient::Stay::Leaving;
  helpers_.push_back({leaving.client, now_ + chance(100'000)});
  const auto at_once = std::count_if(clients_.begin(), clients_.end(), [](const auto& one) {
    return one.second.stay == KnownClient::Stay::Leaving;
  });
  EXPECT_LE(static_cast<std::size_t>(at_once), times_.leave_at_once);
}

void NodeHistory::take_note(const ReturnRequested& returning) {
  ++returns_;
  const auto client = clients_.find(returning.client);
  ASSERT_NE(client, clients_.end());
  KnownClient& known = client->second;
  EXPECT_EQ(known.stay, KnownClient::Stay::Off);
  const auto& kept = policy_.books().find_client(returning.client)->deep.coming_back;
  for (const auto& [place, bytes] : known.contexts) {
    const auto room = kept.find(place);
    EXPECT_EQ(room == kept.end() ? 0 : room->second, bytes) << "there is no room";
  }
  known.stay = KnownClient::Stay::Returning;
  helpers_.push_back({returning.client, now_ + chance(100'000)});
}

void NodeHistory::take_note(const ReturnRefused& refused) {
  const KnownClient& known = clients_[refused.client];
  EXPECT_EQ(known.stay, KnownClient::Stay::Off);
  EXPECT_EQ(known.contexts.at(refused.place), refused.bytes);
}

void NodeHistory::end_helpers_that_are_due() {
  for (std::size_t i = 0; i < helpers_.size();) {
    if (helpers_[i].ends_at > now_) {
      ++i;
      continue;
    }
    const ClientId id = helpers_[i].client;
    helpers_.erase(helpers_.begin() + static_cast<std::ptrdiff_t>(i));
    if (clients_.contains(id)) end_helper(id);
    i = 0;  // the end may have begun others
  }
}

// Only where clients do anything are there contexts, since they become foreign memory, which no
// guarantee allows for.
void NodeHistory::end_helper(ClientId id) {
  KnownClient& known = clients_[id];
  const bool fails = manners_ == Manners::Any && one_in(3);
  const auto report = [&](bool is_off) {
    tell(PresenceReported{.client = id,
                          .is_paused = known.is_paused,
                          .has_held_calls = known.has_held_calls,
                          .is_off_devices = is_off,
                          .contexts = known.contexts});
  };
  if (known.stay == KnownClient::Stay::Leaving) {
    const auto how = !fails      ? LeaveEnded::How::Off
                     : one_in(2) ? LeaveEnded::How::On
                                 : LeaveEnded::How::Halfway;
    known.contexts.clear();
    if (how == LeaveEnded::How::Off && manners_ == Manners::Any) {
      known.contexts[static_cast<PlaceId>(chance(places - 1))] = chance(100);
    }
    if (how != LeaveEnded::How::On) report(true);
    known.stay = how == LeaveEnded::How::On ? KnownClient::Stay::On : KnownClient::Stay::Off;
    return tell(LeaveEnded{id, how, known.contexts});
  }
  const auto how = !fails      ? ReturnEnded::How::Back
                   : one_in(2) ? ReturnEnded::How::Off
                               : ReturnEnded::How::Halfway;
  if (!fails) report(false);
  known.stay = fails ? KnownClient::Stay::Off : KnownClient::Stay::On;
  known.keeps_room = how == ReturnEnded::How::Halfway;
  if (!fails) have_arrived(std::exchange(known.contexts, {}));
  tell(ReturnEnded{id, how});
}

void NodeHistory::have_arrived(const std::map<PlaceId, Size>& contexts) {
  for (const auto& [place, bytes] : contexts) {
    foreign_[place] = std::min(foreign_[place] + bytes, capacity);
  }
}

// What is more than before may be contexts that a helper has just brought back.
void NodeHistory::see_foreign_use(PlaceId place, Size bytes) {
  Size returning = 0;
  for (const auto& [id, client] : clients_) {
    const auto back = client.contexts.find(place);
    const bool counts = client.stay == KnownClient::Stay::Returning || client.keeps_room;
    returning += counts && back != client.contexts.end() ? back->second : 0;
  }
  Size& foreign = foreign_[place];
  foreign = bytes <= foreign ? bytes : std::max(foreign, bytes - std::min(bytes, returning));
  tell(ForeignUseSeen{place, bytes});
}

void NodeHistory::check_contexts() {
  std::map<PlaceId, Size> kept;
  for (const auto& [id, client] : policy_.books().clients()) {
    for (const auto& [place, bytes] : client.deep.coming_back) kept[place] += bytes;
    const DeviceStay stay = client.deep.stay;
    const bool is_away = is_off_devices(stay);
    const auto known = clients_[id].stay;
    EXPECT_EQ(is_away, known == KnownClient::Stay::Off || known == KnownClient::Stay::Returning);
    const bool may_keep =
        stay == DeviceStay::Gathering || stay == DeviceStay::Returning || client.deep.must_return;
    EXPECT_TRUE(may_keep || client.deep.coming_back.empty()) << "room for nobody";
    // Whoever is awaited is on its way, or rests after a failure.
    const bool is_awaited = client.deep.has_held_calls || client.deep.must_return;
    EXPECT_TRUE(stay != DeviceStay::Off || !is_awaited || client.deep.no_return_before > now_);
  }
  for (const auto& [place, facts] : policy_.books().places()) {
    EXPECT_EQ(facts.coming_back, kept[place]);
  }
}

}  // namespace cuvmm::test
