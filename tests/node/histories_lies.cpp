// SPDX-License-Identifier: Apache-2.0
// What clients of random histories do that they should not.
#include <algorithm>

#include "histories.hpp"

namespace cuvmm::test {

void NodeHistory::lie() {
  const auto client = any_client();
  const ClientId id = client->first;
  const PlaceId place = any_place();
  Size& leased = client->second.leased[place];
  const Size nonsense = one_in(2) ? node::unlimited - chance(3) : chance(3 * capacity);
  switch (chance(8)) {
    case 0:
      return tell(UseReported{id, place, nonsense, nonsense, one_in(2)});
    case 1: {
      leased -= std::min(leased, nonsense);
      return tell(LeaseReturned{id, place, nonsense});
    }
    case 2:
      client->second.waiting[++last_request_] = {place, nonsense, false, false, now_};
      return tell(LeaseRequested{id, last_request_, place, nonsense});
    case 3: {
      const Size returned = chance(50);
      leased -= std::min(leased, returned);
      return tell(ReclaimAnswered{id, chance(last_revision_ + 3), place, ReclaimOutcome::Applied,
                                  returned});
    }
    case 4:
      return tell(LeaseReturned{last_client_ + 5, 77, 1});
    case 5:
      return see_foreign_use(place, chance(capacity / 2));
    case 6:
      client->second.waiting[++last_request_] = {place, 0, false, false, now_};
      return tell(LeaseRequested{id, last_request_, place, 0});
    default:
      return tell(ReclaimAnswered{last_client_ + 5, 1, place, ReclaimOutcome::Deferred, 3});
  }
}

}  // namespace cuvmm::test
