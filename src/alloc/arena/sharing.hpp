// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "alloc/arena/granule_survey.hpp"
#include "alloc/arena/tile_changes.hpp"
#include "alloc/arena/torn.hpp"
#include "vmm/copy_stream.hpp"

namespace cuvmm::arena {

// How often to consolidate for one request.
class Consolidations {
 public:
  void note_gain(Size gained) { gained_ += gained; }
  // Whether to do it now. The next time yields less.
  bool is_worthwhile(Size missing) {
    constexpr int most = 3;
    const Size gained = std::exchange(gained_, 0);
    return count_++ == 0 || (count_ <= most && gained >= missing);
  }

 private:
  int count_ = 0;
  Size gained_ = 0;  // since the last time
};

// Several granules of an arena's addresses with one chunk behind them. Every byte of the chunk
// belongs to exactly one of them: there it is part of a block or a free range. At the others it is
// part of a shadow. So memory that shares its chunk is allocated and freed like any other.
//
// Sharing begins with a copy: the live bytes behind a granule go to the same offsets of a chunk in
// which nothing is live there, and that chunk is mapped behind the granule. The caller guarantees
// that no work uses the memory meanwhile.
class Sharing {
 public:
  struct Place {
    Layout& layout;
    Mapping& mapping;
    std::vector<Torn>& torn;
    const AccessSet& access;
    const StreamOrder& order;
    const StripeRows& rows;
    Location where;
  };
  explicit Sharing(const Place& place) : at_(place) {}

  // Estimates how many of `granules` could be gained, perhaps too high. Changes nothing.
  struct Estimate {
    Size granules;
    bool some_stay;  // for now: what is in use, pinned, shared with others, or away
  };
  Estimate could_gain(Size granules) const;

  enum class Aim : std::uint8_t {
    Gain,        // empties chunks
    Consolidate  // gains nothing, but more may be gained after it
  };
  struct Gained {
    Size granules = 0;
    Size bytes_moved = 0;
    std::size_t moves = 0;
    bool lacks_spares = false;  // with more of them, more might have been gained
  };
  // Empties chunks until that many granules of memory are gained, as far as one batch gets. Uses
  // the spare chunks, of a granule each, to break up larger ones. After an Error nothing has
  // changed; if the driver has refused to undo it, restore_torn() does so later.
  Result<Gained> gain(Size granules, Aim aim, const std::vector<ChunkRef>& spares,
                      const CopyBy& copy);

  // Ends sharing where a granule has nothing live and no work uses it: its addresses lose the
  // memory, and its bytes of the chunk belong to another granule.
  struct Ended {
    Size chunks = 0;            // that have nothing live in them now
    bool some_pending = false;  // work may still use what is free
  };
  Ended end_unused();

  // Tries again to restore what is torn.
  void restore_torn();
  // Call after a block was freed while something is torn.
  void hide_torn();

 private:
  // Calls `visit(Place, chunk)` for each place that loses its chunk: a granule of addresses, or all
  // granules of a large chunk at once.
  template <class Visit>
  static void for_each_leaving(const GranuleSurvey& survey, Visit visit) {
    for (const SharingPlan::Index chunk : survey.plan.emptied()) {
      for (const GranuleSurvey::Place& place : survey.chunks[chunk].mapped_at) visit(place, chunk);
    }
    for (const SharingPlan::Index granule : survey.plan.moved()) {
      const SharingPlan::Index home = survey.plan.home(granule);
      if (!survey.plan.is_emptied(home)) visit(survey.granules[granule].place, home);
    }
  }
  [[gnu::cold]] Result<void> copy_all(const GranuleSurvey& survey, const CopyBy& by);
  [[gnu::cold]] void keep_targets(const GranuleSurvey& survey);
  Result<void> map_all(GranuleSurvey& survey);
  void follow(GranuleSurvey& survey);
  void follow_move(const GranuleSurvey::Granule& granule, GranuleSurvey::Chunk& to,
                   TileChanges& changes);
  void leave_to_others(const GranuleSurvey::Granule& granule, GranuleSurvey::Chunk& from,
                       TileChanges& changes);
  [[gnu::cold]] void follow_torn(GranuleSurvey& survey);
  std::size_t give_up(const std::vector<GranuleSurvey::Place>& unused,
                      const GranuleSurvey::Place& keeper, TileChanges& changes,
                      std::vector<Torn>& without_access);
  void give_bytes(const GranuleSurvey::Place& from, const GranuleSurvey::Place& to,
                  const ChunkRef& chunk, TileChanges& changes);
  void hide(Torn& torn);
  enum class Use : std::uint8_t { Live, Pending, None };
  Use use_of(const GranuleSurvey::Place& place) const;

  const Place at_;
};

}  // namespace cuvmm::arena
