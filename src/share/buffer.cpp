// SPDX-License-Identifier: Apache-2.0
#include "share/buffer.hpp"

#include "base/undo.hpp"
#include "driver/device_attribute.hpp"

namespace cuvmm::share {
namespace {

constexpr const char* making = "make memory to share";

Result<void> need(const Driver& driver, int device, CUdevice_attribute what, const char* missing) {
  if (TRY(device_attribute(driver, what, device, making)) != 0) return {};
  return Error{.kind = ErrorKind::NotSupported, .doing = making, .subject = missing};
}

Result<ChunkRef> new_chunk(const Driver& driver, Size size, Location where, ChunkStore* store) {
  if (store != nullptr) return store->take({size, where, Export::Yes});
  return ChunkRef::adopt(TRY(Chunk::create(driver, size, where, Export::Yes)));
}

}  // namespace

struct Buffer::BufferMapping {
  explicit BufferMapping(Reservation&& addresses)
      : reservation(std::move(addresses)), mapping(Mapping::of(reservation)) {}
  Reservation reservation;
  Mapping mapping;  // destroyed first
};

void Buffer::BufferMappingEnd::operator()(BufferMapping* place) const {
  delete place;
}

Buffer::Buffer(const Driver& driver, int device, Size granule, Size chunk_size,
               std::vector<ChunkRef> chunks)
    : driver_(&driver),
      device_(device),
      granule_(granule),
      chunk_size_(chunk_size),
      chunks_(std::move(chunks)) {}

Result<Buffer> Buffer::create(const Driver& driver, const BufferSettings& settings,
                              ChunkStore* store) {
  TRY(need(driver, settings.device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
           "the device has no virtual memory management"));
  TRY(need(driver, settings.device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
           "the device cannot export memory by file descriptor"));
  const Location where = Location::device(settings.device);
  const Size granule = TRY(granularity_of(driver, where));
  if (settings.size == 0) return Error::invalid(making, "of no bytes");
  const Size chunk_size =
      settings.chunk_size != 0 ? settings.chunk_size : round_up(settings.size, granule);
  if (chunk_size == 0 || !is_multiple(chunk_size, granule)) {
    return Error::invalid(making, "chunks are multiples of the granule", chunk_size);
  }
  const Size size = round_up(settings.size, chunk_size);
  if (size == 0 || size / chunk_size > most_chunks) {
    return Error::invalid(making, "of more chunks than can be granted", settings.size);
  }
  // A refusal leaves nothing in the store that was not there before.
  Undo release{
      [store, where, before = store != nullptr ? store->counters(where).physical_free : 0] {
        if (store != nullptr) store->trim(where, before);
      }};
  std::vector<ChunkRef> chunks;
  while (chunks.size() < size / chunk_size) {
    chunks.push_back(TRY(new_chunk(driver, chunk_size, where, store)));
  }
  release.keep();
  return Buffer{driver, settings.device, granule, chunk_size, std::move(chunks)};
}

Result<CUdeviceptr> Buffer::map() {
  if (place_ != nullptr) return Error::invalid("map memory to share", "it is mapped already");
  auto place = std::unique_ptr<BufferMapping, BufferMappingEnd>{
      new BufferMapping{TRY(Reservation::create(*driver_, size(), granule_, granule_))}};
  MapPlan plan;
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    plan.map(place->mapping, i * chunk_size_, chunks_[i], AccessSet::of(device_));
  }
  TRY(plan.commit());
  place_ = std::move(place);
  return address();
}

CUdeviceptr Buffer::address() const {
  return place_ != nullptr ? place_->mapping.address() : 0;
}

Result<Fd> Buffer::export_fd(std::size_t chunk) const {
  if (chunk >= chunks_.size()) return Error::invalid("export a chunk", "there is no such chunk");
  return chunks_[chunk].export_fd();
}

Result<Granted> Buffer::grant(std::size_t first, std::size_t count, GrantAccess access,
                              std::uint64_t tag) const {
  if (count == 0 || first >= chunks_.size() || count > chunks_.size() - first) {
    return Error::invalid("grant memory", "no such chunks");
  }
  const auto from = static_cast<std::ptrdiff_t>(first);
  const auto end = from + static_cast<std::ptrdiff_t>(count);
  return Granted{.chunks = {chunks_.begin() + from, chunks_.begin() + end},
                 .offset = 0,
                 .size = count * chunk_size_,
                 .access = access,
                 .tag = tag};
}

}  // namespace cuvmm::share
