// SPDX-License-Identifier: Apache-2.0
#include "vmm/rebind.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "vmm/copy_bytes.hpp"
#include "vmm/give_back.hpp"
#include "vmm/second_place.hpp"

namespace cuvmm {
namespace {

constexpr const char* doing = "rebind";

struct Exchange {
  std::vector<MappedChunk> before;  // upwards; without those that stay
  std::vector<MappedChunk> after;   // the same bytes
};

// Every chunk of `after` inherits the rights of the bytes that it stands behind, which therefore
// must not change under it.
Result<void> inherit_access(const std::vector<MappedChunk>& before,
                            std::vector<MappedChunk>& after) {
  auto old = before.begin();
  for (MappedChunk& chunk : after) {
    while (old->where().end() <= chunk.offset) ++old;
    chunk.access = old->access;
    for (auto also = old; also != before.end() && also->offset < chunk.where().end(); ++also) {
      if (also->access == chunk.access) continue;
      return Error::invalid(doing, "rights differ behind one chunk", chunk.chunk->size());
    }
  }
  return {};
}

Result<Exchange> compare(const Mapping& mapping, Stretch stretch, std::vector<ChunkRef> chunks) {
  if (stretch.size == 0) return Error::invalid(doing, "of no bytes");
  if (!stretch.fits(mapping.size())) {
    return Error::invalid(doing, "beyond the mapping", stretch.size);
  }
  Exchange exchange;
  Size reached = stretch.offset;
  for (ChunkRef& chunk : chunks) {
    if (!chunk) return Error::invalid(doing, "no chunk");
    const Size size = chunk->size();
    if (!Stretch{reached, size}.fits(stretch.end())) {
      return Error::invalid(doing, "more bytes than there were", size);
    }
    exchange.after.push_back({reached, std::move(chunk), AccessSet::none()});
    reached += size;
  }
  if (reached != stretch.end())
    return Error::invalid(doing, "fewer bytes than there were", reached);
  if (!mapping.covers(stretch)) {
    return Error{.kind = ErrorKind::NotMapped, .doing = doing, .asked = stretch.size};
  }
  exchange.before = mapping.chunks_in(stretch);
  if (exchange.before.front().offset != stretch.offset ||
      exchange.before.back().where().end() != stretch.end()) {
    return Error::invalid(doing, "part of a chunk", stretch.size);
  }
  TRY(inherit_access(exchange.before, exchange.after));
  return exchange;
}

// A chunk at its own place needs nothing done: both lists lose it.
void leave_alone_what_stays(Exchange& exchange) {
  const auto stays_in = [](const std::vector<MappedChunk>& others, const MappedChunk& chunk) {
    const auto same = std::lower_bound(
        others.begin(), others.end(), chunk.offset,
        [](const MappedChunk& other, Size offset) { return other.offset < offset; });
    return same != others.end() && same->offset == chunk.offset && same->chunk == chunk.chunk;
  };
  std::vector<MappedChunk> leaving;
  for (const MappedChunk& chunk : exchange.before) {
    if (!stays_in(exchange.after, chunk)) leaving.push_back(chunk);
  }
  std::erase_if(exchange.after,
                [&](const MappedChunk& chunk) { return stays_in(exchange.before, chunk); });
  exchange.before = std::move(leaving);
}

// Contents can only be kept where no byte is read and written by the same copy.
Result<void> check_copy(const Exchange& exchange, const CopyBy& copy) {
  std::vector<ChunkRef> all;
  all.reserve(exchange.before.size() + exchange.after.size());
  for (const MappedChunk& chunk : exchange.after) all.push_back(chunk.chunk);
  std::sort(all.begin(), all.end());
  if (std::adjacent_find(all.begin(), all.end()) != all.end()) {
    return Error::invalid(doing, "one chunk cannot hold two contents");
  }
  for (const MappedChunk& chunk : exchange.before) {
    if (std::binary_search(all.begin(), all.end(), chunk.chunk)) {
      return Error::invalid(doing, "a chunk cannot be copied over itself");
    }
    if (chunk.access.of_device(copy.device) == Access::None) {
      return Error::invalid(doing, "the copying device may not read the stretch");
    }
  }
  return {};
}

Result<void> copy_pieces(const Mapping& mapping, Size first, const Exchange& exchange,
                         const Mapping& second, CopyBytes& copying) {
  auto from = exchange.before.begin();
  auto to = exchange.after.begin();
  while (to != exchange.after.end()) {
    // Up to the nearer seam; pieces between the same two locations are copied as one.
    const Size begin = std::max(from->offset, to->offset);
    const Size end = std::min(from->where().end(), to->where().end());
    TRY(copying.add(second.address_of(begin - first), mapping.address_of(begin), end - begin,
                    from->chunk->location(), to->chunk->location()));
    if (from->where().end() == end) ++from;
    if (to->where().end() == end) ++to;
  }
  return copying.finish();
}

Result<void> copy_contents(const Mapping& mapping, Stretch stretch, const Exchange& exchange,
                           const CopyBy& copy) {
  const Driver& driver = mapping.driver();
  const auto second = std::make_shared<SecondPlace>(
      TRY(Reservation::create(driver, stretch.size, mapping.granule())));
  MapPlan plan;
  for (const MappedChunk& chunk : exchange.after) {
    plan.map(second->mapping, chunk.offset - stretch.offset, chunk.chunk,
             AccessSet::of(copy.device));
  }
  TRY(plan.commit());
  CopyBytes copying{driver, copy.stream};
  const Result<void> copied =
      copy_pieces(mapping, stretch.offset, exchange, second->mapping, copying);
  if (copied.ok() || copying.is_over()) return copied;
  // It may still be writing there.
  keep_owed(Owed::Copy,
            [&driver, stream = copy.stream, second] { return driver.cuStreamSynchronize(stream); });
  Error error = copied.error();
  error.subject = "and the copy may still run";
  return error;
}

}  // namespace

Result<void> rebind(Mapping& mapping, Stretch stretch, std::vector<ChunkRef> chunks,
                    Contents contents, CopyBy copy) {
  Exchange exchange = TRY(compare(mapping, stretch, std::move(chunks)));
  leave_alone_what_stays(exchange);
  if (exchange.after.empty()) return {};
  MapPlan plan;
  for (const MappedChunk& chunk : exchange.before) plan.unmap(mapping, chunk.offset);
  for (const MappedChunk& chunk : exchange.after) {
    plan.map(mapping, chunk.offset, chunk.chunk, chunk.access);
  }
  TRY(plan.validate());
  if (contents == Contents::Keep) {
    TRY(check_copy(exchange, copy));
    TRY(copy_contents(mapping, stretch, exchange, copy));
  }
  return plan.commit();
}

}  // namespace cuvmm
