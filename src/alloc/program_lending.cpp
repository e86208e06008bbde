// SPDX-License-Identifier: Apache-2.0
#include "alloc/program_lending.hpp"

#include <algorithm>

namespace cuvmm {
namespace {

constexpr const char* lending = "lend memory";

}  // namespace

bool ProgramLending::Lent::is_there() const {
  return !chunks.empty() && !chunks.front().expired();
}

Result<Memory::Lent> ProgramLending::lend(CUdeviceptr address, const Lending::Secret& fresh) {
  const auto places = chunks_.run_from(address);
  if (places.empty()) return Error::invalid(lending, "nothing is mapped there");
  if (!TRY(chunks_.is_exportable_from(address))) {
    return Error{.kind = ErrorKind::NotSupported,
                 .doing = lending,
                 .subject = "the program created a chunk of it without a handle type"};
  }
  std::vector<std::weak_ptr<ProgramChunk>> chunks;
  for (const ProgramChunks::Place& place : places) {
    const ChunkRef chunk = TRY(chunks_.take_over(*place.chunk, place.address));
    chunk.prepare_to_send();  // rather than while the importer waits
    chunks_.pin(place.address, 1, pin::legacy_ipc);
    chunks.push_back(place.chunk);
  }
  const Begin begin{places.front().chunk->id, places.front().address};
  const Holding holding{lock_};
  std::erase_if(all_, [](const auto& lent) { return !lent.second.is_there(); });
  auto lent = std::find_if(all_.begin(), all_.end(),
                           [&](const auto& one) { return one.second.begin == begin; });
  if (lent == all_.end()) lent = all_.emplace(++last_, Lent{begin, fresh, {}}).first;
  lent->second.chunks = std::move(chunks);
  return Memory::Lent{lent->first, lent->second.secret};
}

std::optional<Lending::Secret> ProgramLending::secret_of(Id id) const {
  const Holding holding{lock_};
  const auto found = all_.find(id);
  if (found == all_.end() || !found->second.is_there()) return std::nullopt;
  return found->second.secret;
}

Result<Lending::Block> ProgramLending::borrow(Id id) const {
  std::vector<std::shared_ptr<ProgramChunk>> chunks;  // destroyed without the lock
  const Holding holding{lock_};
  const auto found = all_.find(id);
  Lending::Block block;
  if (found != all_.end()) {
    // Stops at the first that is gone: it may have belonged to another block, beside the lent one.
    for (const auto& lent : found->second.chunks) {
      std::shared_ptr<ProgramChunk> chunk = lent.lock();
      if (chunk == nullptr) break;
      block.size += chunk->size;
      block.chunks.push_back(chunks_.backing(*chunk));
      chunks.push_back(std::move(chunk));
    }
  }
  if (!chunks.empty()) return block;
  return Error{.kind = ErrorKind::NotFound, .doing = lending, .subject = "it was freed"};
}

}  // namespace cuvmm
