// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "alloc/memory.hpp"
#include "alloc/native_charge.hpp"
#include "trace/record.hpp"
#include "vmm/chunk_ref.hpp"

namespace cuvmm {

struct HeldChunk;

// A chunk that the program created or imported itself. Exists while the program has a reference to
// it or a mapping of it.
struct ProgramChunk {
  std::uint64_t id = 0;                   // never reused in this process
  Size size = 0;                          // 0: imported, and never mapped
  CUmemAllocationProp properties{};       // with which the driver created it
  bool has_added_type = false;            // the program did not ask for file descriptors of it
  CUmemGenericAllocationHandle name = 0;  // the program's handle, while it has references
  int references = 1;                     // the program's
  const char* stays = nullptr;            // why it cannot leave its device
  bool is_shared = false;                 // others may hold it, or it is theirs
  std::vector<CUdeviceptr> mapped_at;
  NativeCharge charge;  // until it is taken over: then the chunk that backs it has its own
  // The only reference that the driver knows, from the first pause or move on (of a spilled chunk,
  // from the start); the program's are counted here. Empty before, and while the chunk is away.
  ChunkRef moved;
  bool is_taken_over = false;
  bool has_aliases = false;  // several of the driver's handles name it: it cannot be taken over

  void pin(std::uint8_t why);
  bool is_imported() const { return properties.type == CU_MEM_ALLOCATION_TYPE_INVALID; }
  Location lies_on(int home) const { return moved ? moved->location() : Location::device(home); }
  // Backed by memory elsewhere: spilled, or resumed on the host.
  bool is_far() const {
    return moved && residency(moved->location(), properties.location.id) == Residency::Far;
  }
  bool is_exportable() const { return has_file_descriptor(properties) && !is_far(); }
  static bool has_file_descriptor(const CUmemAllocationProp& properties) {
    return (static_cast<unsigned>(properties.requestedHandleTypes) & file_descriptor) != 0;
  }
  static CUmemAllocationHandleType with_file_descriptor(CUmemAllocationHandleType types) {
    return static_cast<CUmemAllocationHandleType>(static_cast<unsigned>(types) | file_descriptor);
  }
  static CUmemAllocationHandleType without_file_descriptor(CUmemAllocationHandleType types) {
    return static_cast<CUmemAllocationHandleType>(static_cast<unsigned>(types) & ~file_descriptor);
  }
  // The chunk's key in placement. No handle of the driver has this value.
  CUmemGenericAllocationHandle key() const { return first_key + id; }
  // Whether memory anywhere may back a chunk with these properties: until the program exports the
  // chunk, nothing depends on its location.
  static bool may_be_spilled(const CUmemAllocationProp& properties);

  static constexpr CUmemGenericAllocationHandle first_key = 0xC0DF'0000'0000'0000;
  static constexpr unsigned file_descriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  static constexpr const char* goes_by_several_handles = "the driver knows it by several handles";
};

// The chunks of virtual memory that the program manages itself, with cuMemCreate and cuMemMap: how
// often it refers to each, where each is mapped, and who may access it there. A chunk that has left
// its device and come back is another chunk for the driver, so the handle that the program knows is
// translated. Thread-safe.
//
// Hooks call the functions that are named after driver calls.
class ProgramChunks {
 public:
  using Handle = CUmemGenericAllocationHandle;

  explicit ProgramChunks(const Driver& driver) : driver_(driver) {}

  // Call with the driver's new handle. They return the handle that the program gets, which differs
  // if the program knows another chunk by that number.
  Handle created(Handle handle, Size size, const CUmemAllocationProp& properties,
                 NativeCharge charge = {});
  // A chunk for the program that lies elsewhere.
  Handle spilled(const ChunkRef& as, Size size, const CUmemAllocationProp& properties);
  Handle imported(Handle handle);
  Handle retained(Handle handle, CUdeviceptr address);
  // Adds a reference to the chunk at the address, if cuvmm counts its references in place of the
  // driver.
  std::optional<Handle> retain(CUdeviceptr address);

  // Translates the program's handle into the driver's. 0 if the program has no such handle but
  // cuvmm does.
  Handle handle_of(Handle name) const;
  // Whether the program knows another chunk by this number.
  bool is_taken(Handle handle) const;

  // Drops a reference. Call before the driver does, since the number may be reused right after.
  struct Release {
    std::shared_ptr<ProgramChunk> chunk;  // nullptr: unknown
    Handle name = 0;
    Handle handle = 0;
    bool is_for_driver = true;
  };
  Release release(Handle name);
  void restore(const Release& release);

  // Where a chunk is mapped.
  struct Place {
    CUdeviceptr address = 0;
    Size size = 0;
    std::shared_ptr<ProgramChunk> chunk;
    AccessSet access;        // as the program set it
    bool continues = false;  // the program set access to it together with the place before it
    bool is_mapped = true;   // false while the chunk is away
    AccessSet access_now;    // none while it is away

    bool contains(CUdeviceptr at) const { return at - address < size; }
    // Whether the device may read and write there.
    bool is_open_to(int device) const { return access.of_device(device) == Access::ReadWrite; }
  };
  // `offset` is that of the first mapped byte in the chunk.
  void mapped(CUdeviceptr address, Size size, Handle name, Size offset = 0);
  // Call before the driver unmaps them.
  std::vector<Place> unmap(CUdeviceptr address, Size size);
  void restore(std::vector<Place> places);
  void set_access(CUdeviceptr address, Size size, std::span<const CUmemAccessDesc> lines);

  // The chunk must not leave its device any more. `why` is as for allocations (pin).
  void pin(Handle name, std::uint8_t why);
  void pin(CUdeviceptr address, Size size, std::uint8_t why);
  void pin_for_array(Handle name);

  // Whether others may hold a chunk, or the program holds one of theirs.
  bool are_shared() const;

  // Whether the program has mapped a chunk there.
  bool contains(CUdeviceptr address) const;

  // The contiguous mappings from the one that contains the address onwards; empty if none does.
  std::vector<Place> run_from(CUdeviceptr address) const;
  // The memory behind a chunk that was taken over; empty while it is away.
  ChunkRef backing(const ProgramChunk& chunk) const;

  // Whether other processes can import all of run_from(). NotSupported if they cannot, and a chunk
  // of it must stay as it is.
  Result<bool> is_exportable_from(CUdeviceptr address) const;
  // The properties that the program asked for, where the driver's answer would differ: the chunk
  // lies elsewhere, or was made exportable.
  std::optional<CUmemAllocationProp> asked_properties(Handle name) const;
  std::optional<CUmemAllocationProp> asked_properties_at(CUdeviceptr address) const;
  bool is_far(Handle name) const;
  // One place of each chunk that is spilled; without an address if the program has not mapped it.
  std::vector<Place> far(Handle name) const;
  std::vector<Place> far(CUdeviceptr address, Size size) const;
  // Where the mapping that contains the address begins, if its chunk is elsewhere.
  std::optional<CUdeviceptr> begin_of_far(CUdeviceptr address) const;

  // Adds the mappings of chunks that may be spilled, in the order of addresses, under the keys of
  // the chunks. Can be called at any time.
  void list_held(int device, std::vector<HeldChunk>& held) const;
  // Bytes on the device of chunks that were not spilled.
  Size near_bytes(int device) const;
  // The chunks that the program created for a device; not what it imported.
  struct Created {
    Size bytes = 0;
    Size on_device = 0;  // of these, neither spilled nor away for a pause
  };
  Created created_for(int device) const;

  // For a pause (alloc/program_eviction.hpp), or to make chunks exportable. Until it ends, the
  // program makes none of the calls above but imported() and contains().
  std::vector<std::shared_ptr<ProgramChunk>> chunks_on(int device) const;
  AccessSet devices() const;  // those with chunks
  Size bytes_on_devices() const;
  std::vector<Place> places_of(const ProgramChunk& chunk) const;
  // Leaves the driver a single reference to the chunk, which is mapped at the address, and returns
  // that.
  Result<ChunkRef> take_over(ProgramChunk& chunk, CUdeviceptr address);
  void set_backing(CUdeviceptr address, bool is_mapped, const AccessSet& access);
  // Call once the chunk is mapped nowhere, or another one is mapped in its place.
  void left(ProgramChunk& chunk);
  void came_back(ProgramChunk& chunk, const ChunkRef& as);
  // Call once another chunk is mapped wherever the one that was taken over was.
  void exchanged(ProgramChunk& chunk, const ChunkRef& as, const CUmemAllocationProp& properties);

  bool is_empty() const { return count_.load(std::memory_order_acquire) == 0; }

 private:
  struct Named {
    std::shared_ptr<ProgramChunk> chunk;
    Handle handle = 0;   // the driver's, as long as the chunk has not moved
    int references = 1;  // by this name
  };
  using Places = std::map<CUdeviceptr, Place>;

  // The caller holds the lock for these.
  std::shared_ptr<ProgramChunk> make(Size size, const CUmemAllocationProp& properties);
  Handle add_name(const std::shared_ptr<ProgramChunk>& chunk, Handle handle,
                  std::shared_ptr<ProgramChunk>& forgotten);
  bool is_another(Handle handle) const;
  void rename_if_gone(ProgramChunk& chunk);
  static Handle unknown(Handle name);
  const Place* find(CUdeviceptr address) const;
  const Place* behind(const Place& place) const;
  template <class SomePlaces, class Visit>
  static void for_each_in(SomePlaces& places, CUdeviceptr address, Size size, Visit visit) {
    auto at = places.upper_bound(address);
    if (at != places.begin() && std::prev(at)->second.contains(address)) --at;
    for (; at != places.end() && at->first < address + size; ++at) visit(at->second);
  }
  int device_of(const ProgramChunk& chunk) const;  // -1: none
  // Calls `visit(const std::shared_ptr<ProgramChunk>&)`. The caller holds the lock.
  template <class Visit>
  void for_each(Visit visit) const;
  void count();
  void record(TraceEvent event, const ProgramChunk& chunk) const;

  const Driver& driver_;
  std::atomic<std::uint64_t> last_id_{0};
  std::atomic<std::size_t> count_{0};  // names and places; written under the lock

  mutable SharedLock lock_{LockOrder::ProgramChunks};  // guards what follows, and every chunk
  std::unordered_map<Handle, Named> names_;
  Places places_;
  std::uint64_t last_invented_ = 0;
};

}  // namespace cuvmm
