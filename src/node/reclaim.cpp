// SPDX-License-Identifier: Apache-2.0
#include "node/reclaim.hpp"

#include <tuple>

namespace cuvmm::node {
namespace {

struct LeaseHolder {
  ClientId id = 0;
  const NodeClient* client = nullptr;
  Size reclaimable = 0;
};

class ReclaimPlanner {
 public:
  ReclaimPlanner(const NodeBooks& books, const OpenReclaims& open, const Shortage& shortage)
      : books_(books), open_(open), shortage_(shortage) {
    if (shortage.asker) asker_ = books.find_client(*shortage.asker);
    find_lenders();
  }

  ReclaimPlan plan() const {
    for (const ReclaimStep most : {ReclaimStep::Cache, ReclaimStep::Cold, ReclaimStep::Pause}) {
      Size missing = shortage_.bytes;
      ReclaimPlan planned = plan_up_to(most, missing);
      if (missing == 0) return planned;
      if (most == ReclaimStep::Pause && takes_what_there_is()) return planned;
    }
    return {};
  }

 private:
  // The client of a request that is refused asks again soon. So a turn that cannot be satisfied
  // would pause the same lenders over and over.
  bool takes_what_there_is() const {
    return shortage_.right == Right::Overcommit || shortage_.right == Right::Guarantee;
  }

  void find_lenders() {
    for (const auto& [id, client] : books_.clients()) {
      if (id == shortage_.asker || client.is_stalled) continue;
      if (open_.has(id, shortage_.place)) continue;  // one request at a time
      const Size reclaimable = client.reclaimable(shortage_.place, shortage_.now);
      if (reclaimable != 0) lenders_.push_back({id, &client, reclaimable});
    }
    std::stable_sort(lenders_.begin(), lenders_.end(),
                     [](const LeaseHolder& a, const LeaseHolder& b) {
                       const auto rank = [](const LeaseHolder& lender) {
                         const NodeClient& client = *lender.client;
                         return std::tuple{client.terms.priority, ~lender.reclaimable,
                                           !client.is_idle, client.idle_since};
                       };
                       return rank(a) < rank(b);
                     });
  }

  ReclaimPlan plan_up_to(ReclaimStep most, Size& missing) const {
    ReclaimPlan planned;
    std::set<std::string> paused;
    for (const LeaseHolder& lender : lenders_) {
      if (missing == 0) break;
      if (paused.contains(lender.client->group)) continue;
      const Size wanted = std::min(missing, lender.reclaimable);
      const ReclaimStep step = mildest_step(lender, wanted, most);
      if (step == ReclaimStep::Pause) {
        paused.insert(lender.client->group);
        missing -= std::min(missing, plan_pause(lender.client->group, planned));
        continue;
      }
      const Size had = std::min(wanted, available(lender, step));
      if (had == 0) continue;
      const bool is_cached = had <= available(lender, ReclaimStep::Cache);
      planned.push_back({lender.id, shortage_.place, is_cached ? ReclaimStep::Cache : step, had});
      missing -= had;
    }
    return planned;
  }

  // The mildest step that yields `wanted`, or else the one that yields most.
  ReclaimStep mildest_step(const LeaseHolder& lender, Size wanted, ReclaimStep most) const {
    if (available(lender, ReclaimStep::Cache) >= wanted || most == ReclaimStep::Cache) {
      return ReclaimStep::Cache;
    }
    if (available(lender, ReclaimStep::Cold) >= wanted || most == ReclaimStep::Cold) {
      return ReclaimStep::Cold;
    }
    return may_pause(lender.client->group) ? ReclaimStep::Pause : ReclaimStep::Cold;
  }

  // Bytes that the lender can give while it runs. A step includes the milder ones.
  Size available(const LeaseHolder& lender, ReclaimStep step) const {
    const ClientHolding& holding = *lender.client->find(shortage_.place);
    Size bytes = holding.cache;
    if (step == ReclaimStep::Cold && may_move(*lender.client)) bytes += holding.cold;
    return std::min(bytes, lender.reclaimable);
  }

  // A Plain request must not disturb a higher priority, the holder of a turn, or a client during
  // its minimum stay.
  bool may_move(const NodeClient& client) const {
    switch (shortage_.right) {
      case Right::Plain:
        return client.stays_until <= shortage_.now &&
               client.terms.priority <= asker_->terms.priority &&
               !shortage_.turn_holders.contains(client.group);
      case Right::Overcommit:
      case Right::Turn:
      case Right::Guarantee:
        return true;
    }
    return false;
  }

  bool may_pause(const std::string& group) const {
    if (asker_ != nullptr && asker_->group == group) return false;
    const bool of_busy = shortage_.right == Right::Turn || shortage_.right == Right::Guarantee;
    if (!of_busy && !books_.is_idle(group)) return false;
    for (const ClientId id : books_.members(group)) {
      const NodeClient& member = *books_.find_client(id);
      if (member.is_stalled || !may_move(member)) return false;
      for (const auto& [place, holding] : member.at) {
        if (holding.refuses_to_pause || open_.is_to_pause(id, place)) return false;
      }
    }
    return true;
  }

  // Plans a pause of all members at all places. Returns the bytes that this yields at the place of
  // the shortage.
  Size plan_pause(const std::string& group, ReclaimPlan& planned) const {
    Size here = 0;
    for (const ClientId id : books_.members(group)) {
      const NodeClient& member = *books_.find_client(id);
      std::erase_if(planned, [&](const PlannedReclaim& milder) {
        const bool replaced = milder.client == id && milder.place == shortage_.place;
        if (replaced) here -= milder.bytes;  // already counted
        return replaced;
      });
      for (const auto& [place, holding] : member.at) {
        if (holding.leased == 0 || is_host(place)) continue;
        const Size movable = member.reclaimable(place, shortage_.now);
        const Size bytes = movable - std::min(movable, open_.expected_of(id, place));
        planned.push_back({id, place, ReclaimStep::Pause, bytes});
        if (place == shortage_.place) here += bytes;
      }
    }
    return here;
  }

  bool is_host(PlaceId place) const { return books_.find_place(place)->kind == PlaceKind::Host; }

  const NodeBooks& books_;
  const OpenReclaims& open_;
  const Shortage& shortage_;
  const NodeClient* asker_ = nullptr;
  std::vector<LeaseHolder> lenders_;
};

}  // namespace

OpenReclaim& OpenReclaims::open(const OpenReclaim& request) {
  OpenReclaim& opened = open_.emplace_back(request);
  opened.revision = ++last_;
  return opened;
}

OpenReclaim* OpenReclaims::find(ClientId client, Revision revision) {
  const auto found = std::find_if(open_.begin(), open_.end(), [&](const OpenReclaim& one) {
    return one.client == client && one.revision == revision;
  });
  return found == open_.end() ? nullptr : &*found;
}

OpenReclaim OpenReclaims::end(Revision revision) {
  const auto found = std::find_if(open_.begin(), open_.end(),
                                  [&](const OpenReclaim& one) { return one.revision == revision; });
  const OpenReclaim ended = *found;
  open_.erase(found);
  return ended;
}

void OpenReclaims::note_given(ClientId client, PlaceId place, Size bytes) {
  for (OpenReclaim& one : open_) {
    if (one.client != client || one.place != place || one.step != ReclaimStep::Pause) continue;
    one.bytes -= std::min(one.bytes, bytes);
    one.given_so_far += bytes;
    return;
  }
}

Size OpenReclaims::expected(PlaceId place) const {
  Size sum = 0;
  for (const OpenReclaim& one : open_) sum += one.place == place ? one.bytes : 0;
  return sum;
}

Size OpenReclaims::expected_of(ClientId client, PlaceId place) const {
  Size sum = 0;
  for (const OpenReclaim& one : open_) {
    sum += one.client == client && one.place == place ? one.bytes : 0;
  }
  return sum;
}

bool OpenReclaims::has(ClientId client, PlaceId place) const {
  return std::any_of(open_.begin(), open_.end(), [&](const OpenReclaim& one) {
    return one.client == client && one.place == place;
  });
}

bool OpenReclaims::is_to_pause(ClientId client, PlaceId place) const {
  return std::any_of(open_.begin(), open_.end(), [&](const OpenReclaim& one) {
    return one.client == client && one.place == place && one.step == ReclaimStep::Pause;
  });
}

const OpenReclaim* OpenReclaims::pause_of(ClientId client) const {
  const auto found = std::find_if(open_.begin(), open_.end(), [&](const OpenReclaim& one) {
    return one.client == client && one.step == ReclaimStep::Pause;
  });
  return found == open_.end() ? nullptr : &*found;
}

ReclaimPlan plan_reclaims(const NodeBooks& books, const OpenReclaims& open,
                          const Shortage& shortage) {
  return ReclaimPlanner{books, open, shortage}.plan();
}

}  // namespace cuvmm::node
