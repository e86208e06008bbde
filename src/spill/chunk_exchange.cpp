// SPDX-License-Identifier: Apache-2.0
#include "spill/chunk_exchange.hpp"

#include "alloc/device_reclaim.hpp"
#include "alloc/near_chunk.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/not_cancelled.hpp"
#include "base/undo.hpp"
#include "driver/current_context.hpp"
#include "vmm/copy_bytes.hpp"

namespace cuvmm {
namespace {

constexpr const char* exchanging = "exchange the program's chunks";
constexpr const char* a_capture_lives = "a stream capture is in progress";

Error not_now(const char* why) {
  return {.kind = ErrorKind::NotSupported, .doing = exchanging, .subject = why};
}

}  // namespace

Result<void> ChunkExchange::make_exportable(CUdeviceptr address, Duration within) {
  const auto wanted = [](const ProgramChunk& chunk) -> std::optional<CUmemAllocationProp> {
    if (chunk.is_exportable()) return std::nullopt;
    CUmemAllocationProp properties = chunk.properties;
    properties.requestedHandleTypes =
        ProgramChunk::with_file_descriptor(properties.requestedHandleTypes);
    return properties;
  };
  if (TRY(program_.chunks->is_exportable_from(address))) return {};
  return while_still(within, [&]() -> Result<void> {
    TRY(program_.chunks->is_exportable_from(address));  // the program may have changed something
    return exchange_all(program_.chunks->run_from(address), wanted);
  });
}

Result<void> ChunkExchange::bring_in(const Places& spilled, Duration within) {
  const auto wanted = [](const ProgramChunk& chunk) -> std::optional<CUmemAllocationProp> {
    return chunk.is_far() ? std::optional{chunk.properties} : std::nullopt;
  };
  return while_still(within, [&]() -> Result<void> {
    const std::vector<Place> places = spilled();
    for (const Place& place : places) {
      if (place.chunk->stays != nullptr) return not_now(place.chunk->stays);
    }
    return exchange_all(places, wanted);
  });
}

Result<void> ChunkExchange::while_still(Duration within,
                                        const std::function<Result<void>()>& exchange) const {
  const auto is_capturing = [this] {
    return program_.captures != nullptr && program_.captures->any();
  };
  const char* why = why_not_quiescible(program_);
  if (why == nullptr && is_capturing()) why = a_capture_lives;
  if (why != nullptr) return not_now(why);
  const std::uint64_t until =
      now_ns() + static_cast<std::uint64_t>(std::chrono::nanoseconds{within}.count());
  TRY(quiesce(program_, exchanging, until, until));
  const Undo let_continue{[this] { end_quiescence(program_); }};
  if (is_capturing()) return not_now(a_capture_lives);
  const RelaxedCapture relaxed{program_.driver};
  return exchange();
}

Result<void> ChunkExchange::exchange_all(const std::vector<Place>& places, const Wanted& wanted) {
  const Driver& driver = program_.driver;
  std::shared_ptr<CopyStream> stream;
  CUcontext of_stream = nullptr;
  for (const Place& place : places) {
    const auto properties = wanted(*place.chunk);
    if (!properties) continue;
    // A program may use memory of a device without a context there, through a peer.
    CUcontext context = program_.memory.contexts().any_on(place.chunk->properties.location.id);
    if (context == nullptr) context = current_context(driver);
    const InContext in_context{driver, context};
    TRY(driver.check(in_context.answer(), exchanging));
    if (context != of_stream) stream = std::make_shared<CopyStream>(driver);
    of_stream = context;
    TRY(exchange(place, *properties, stream));
  }
  return {};
}

Result<void> ChunkExchange::exchange(const Place& place, const CUmemAllocationProp& wanted,
                                     const std::shared_ptr<CopyStream>& stream) {
  ProgramChunks& chunks = *program_.chunks;
  ProgramChunk& chunk = *place.chunk;
  const ChunkRef fresh = TRY(create(chunk, wanted));
  const ChunkRef old = TRY(chunks.take_over(chunk, place.address));
  TRY(copy(old, fresh, stream));
  Remap remap{program_.driver};
  for (const Place& one : chunks.places_of(chunk)) {
    remap.separate();  // the neighbours are other chunks, perhaps of other reservations
    remap.add(one.address, {old, one.access_now}, {fresh, one.access});
  }
  TRY(commit(remap));
  chunks.exchanged(chunk, fresh, wanted);
  return {};
}

// Only spilled memory needs room within the limit: other memory takes the place of a chunk that is
// charged already.
Result<ChunkRef> ChunkExchange::create(const ProgramChunk& chunk,
                                       const CUmemAllocationProp& wanted) const {
  const Driver& driver = program_.driver;
  DeviceMemory* const device = program_.memory.devices().find(wanted.location.id);
  auto made = create_near(driver, device, chunk.size, wanted);
  if (!DeviceReclaim::may_help(made) || chunk.is_far() || device == nullptr) return made;
  auto charge = NativeCharge::beyond_limit(device->bound(), chunk.size);
  return adopt_charged(TRY(Chunk::create_as(driver, chunk.size, wanted)), std::move(charge));
}

// Copies through scratch mappings, because the program may have given no device read access to its
// own.
Result<void> ChunkExchange::copy(const ChunkRef& from, const ChunkRef& to,
                                 const std::shared_ptr<CopyStream>& stream) const {
  const Driver& driver = program_.driver;
  const Size granule = TRY(granularity_of(driver, from->location()));
  const auto mapping = TRY(ScratchMapping::of(driver, granule, {from, to}, current_device(driver)));
  CopyBytes copies{driver, stream->handle()};
  const CUdeviceptr begin = mapping->addresses.address();
  auto copied =
      copies.add(begin + from->size(), begin, from->size(), from->location(), to->location());
  if (copied.ok()) copied = copies.finish();
  if (!copied.ok() && !copies.is_over()) stream->keep_until_idle(mapping);
  return copied;
}

// Both chunks have the contents, so it does not matter which of them is mapped. While neither is,
// the program must not continue, unless it ends.
Result<void> ChunkExchange::commit(Remap& remap) {
  for (;; rest_us(1000)) {
    Result<void> done = remap.commit(*this);
    if (done.ok() || !remap.is_torn()) return done;
    int count = 0;
    if (program_.driver.cuDeviceGetCount(&count) == CUDA_ERROR_DEINITIALIZED) return done;
    CUVMM_LOG_ONCE(Warning, "%s: the program waits until the driver maps it again",
                   done.error().text().c_str());
  }
}

void ChunkExchange::set_backing(At at, const ChunkRef& /*chunk*/, const AccessSet& access) {
  program_.chunks->set_backing(at.address, true, access);
}

void ChunkExchange::remove_backing(At at, const ChunkRef& /*chunk*/) {
  program_.chunks->set_backing(at.address, false, AccessSet::none());
}

}  // namespace cuvmm
