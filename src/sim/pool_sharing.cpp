// SPDX-License-Identifier: Apache-2.0
#include "sim/pool_sharing.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "base/made_once.hpp"
#include "sim/address_layout.hpp"
#include "sim/device.hpp"
#include "sim/pool.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {

// The beginning of the catalogue.
struct CatalogueHeader {
  std::uint64_t kind = 0x6c6f6f706d767563;  // "cuvmpool"
  std::uint64_t token = 0;                  // of the pool
  std::uint64_t piece_size = 0;
  std::int32_t process = 0;
  std::int32_t device = 0;
};

class PoolImport {
 public:
  PoolImport(Fd catalogue, const CatalogueHeader& header)
      : catalogue_(std::move(catalogue)), header_(header) {}
  const CatalogueHeader& header() const { return header_; }
  int catalogue() const { return catalogue_.number(); }

 private:
  Fd catalogue_;
  const CatalogueHeader header_;
};

namespace {

// The layout of the 64 bytes of an exported pointer.
struct ExportedPointer {
  std::uint64_t token = 0;  // of its pool
  CUdeviceptr address = 0;  // in the exporting process
  Size size = 0;
};
static_assert(sizeof(ExportedPointer) <= sizeof(CUmemPoolPtrExportData));

struct CatalogueEntry {
  std::uint64_t inode = 0;
  std::int32_t descriptor = -1;
  std::int32_t is_there = 0;
};

Size piece_size() {
  return std::max<Size>(32 * MiB, settings().granularity);  // both powers of two
}

off_t place_of(CUdeviceptr piece, Size size_of_piece) {
  const std::uint64_t number = (piece - device_addresses_begin) / size_of_piece;
  return static_cast<off_t>(sizeof(CatalogueHeader) + number * sizeof(CatalogueEntry));
}

struct Pieces {
  CUdeviceptr begin;
  CUdeviceptr end;
};
Pieces pieces_of(CUdeviceptr address, Size size, Size size_of_piece) {
  return {round_down(address, size_of_piece), round_up(address + size, size_of_piece)};
}

struct Catalogue {
  Fd file;
  std::uint64_t token = 0;
};

// The catalogues of exported pools. Kept until the process ends, like the descriptors that
// were given out.
struct Catalogues {
  static Catalogues& get() {
    static constinit MadeOnce<Catalogues> all;
    return all.get();
  }
  std::mutex lock;                             // guards of_pool; no lock is taken under it
  std::map<std::uint64_t, Catalogue> of_pool;  // by id, since the pool may be gone
};

// The pool's catalogue, created on first use: its file (-1 if it cannot be created) and token.
std::pair<int, std::uint64_t> catalogue_of(const Pool& pool) {
  Catalogues& all = Catalogues::get();
  const std::lock_guard holding{all.lock};
  const auto known = all.of_pool.find(pool.id());
  if (known != all.of_pool.end()) return {known->second.file.number(), known->second.token};
  Fd file{memfd_create("cuvmm-sim-pool", MFD_CLOEXEC)};
  CatalogueHeader header;
  header.token = secret_of_this_process() + 2 * pool.id();
  header.piece_size = piece_size();
  header.process = static_cast<std::int32_t>(getpid());
  header.device = pool.properties().device != nullptr ? pool.properties().device->number() : -1;
  if (!file.is_open() || pwrite(file.number(), &header, sizeof header, 0) != sizeof header) {
    return {-1, 0};
  }
  const int number = file.number();
  all.of_pool[pool.id()] = {std::move(file), header.token};
  return {number, header.token};
}

}  // namespace

int export_pool(const std::shared_ptr<Pool>& pool) {
  const int file = catalogue_of(*pool).first;
  return file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, 0);
}

CUresult export_pointer(const std::shared_ptr<Pool>& pool, const Allocation& allocation,
                        CUmemPoolPtrExportData* data) {
  const auto [file, token] = catalogue_of(*pool);
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const Size step = piece_size();
  const Pieces pieces = pieces_of(allocation.address, allocation.size, step);
  for (CUdeviceptr piece = pieces.begin; piece != pieces.end; piece += step) {
    const auto mapping = space().mapping_at(piece);
    if (!mapping.has_value()) return CUDA_ERROR_INVALID_VALUE;
    const auto shared = share(mapping->chunk);
    if (!shared.has_value()) return CUDA_ERROR_NOT_SUPPORTED;
    const CatalogueEntry entry{shared->inode, shared->descriptor, 1};
    if (pwrite(file, &entry, sizeof entry, place_of(piece, step)) != sizeof entry) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  const ExportedPointer exported{token, allocation.address, allocation.size};
  *data = {};
  std::memcpy(data, &exported, sizeof exported);
  return CUDA_SUCCESS;
}

std::shared_ptr<Pool> import_pool(int descriptor) {
  CatalogueHeader header{};
  if (pread(descriptor, &header, sizeof header, 0) != sizeof header) return nullptr;
  if (header.kind != CatalogueHeader{}.kind || header.piece_size != piece_size()) return nullptr;
  Fd own{fcntl(descriptor, F_DUPFD_CLOEXEC, 0)};
  if (!own.is_open()) return nullptr;
  Device* device = Process::get().device_numbered(header.device);
  if (header.device >= 0 && device == nullptr) return nullptr;  // this process does not see it
  return create_pool(
      {.device = device, .import = std::make_shared<PoolImport>(std::move(own), header)});
}

namespace {

// Maps one piece of the other process at an address of this one.
bool map_piece(const PoolImport& import, CUdeviceptr theirs, CUdeviceptr ours, const Pool& pool) {
  const Size step = import.header().piece_size;
  CatalogueEntry entry;
  if (pread(import.catalogue(), &entry, sizeof entry, place_of(theirs, step)) != sizeof entry ||
      entry.is_there == 0) {
    return false;
  }
  Fd file = open_shared({import.header().process, entry.descriptor, entry.inode});
  if (!file.is_open()) return false;
  auto chunk = Chunk::import(file.number());
  if (chunk == nullptr) return false;
  if (chunk->size() != step) return false;
  if (space().map(ours, std::move(chunk), Owner::Driver) != CUDA_SUCCESS) return false;
  for (int who = 0; who <= host_access; ++who) {
    if (pool.access_of(who) != Access::None) {
      space().set_access(ours, step, who, pool.access_of(who), Owner::Driver);
    }
  }
  return true;
}

void unmap_pieces(CUdeviceptr begin, CUdeviceptr end) {
  const Size step = piece_size();
  for (CUdeviceptr piece = begin; piece != end; piece += step) {
    space().unmap(piece, step, Owner::Driver);  // refused if nothing is mapped
  }
  space().free_reservation(begin, end - begin, Owner::Driver);
}

}  // namespace

CUresult import_pointer(const std::shared_ptr<Pool>& pool, const CUmemPoolPtrExportData& data,
                        CUdeviceptr* address) {
  ExportedPointer exported;
  std::memcpy(static_cast<void*>(&exported), &data, sizeof exported);
  const PoolImport& import = *pool->properties().import;
  if (exported.token != import.header().token) return CUDA_ERROR_INVALID_VALUE;
  const Size step = import.header().piece_size;
  const Pieces theirs = pieces_of(exported.address, exported.size, step);
  const CUdeviceptr begin = space().reserve(theirs.end - theirs.begin, step, 0, Owner::Driver);
  if (begin == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUdeviceptr end = begin + (theirs.end - theirs.begin);
  for (CUdeviceptr piece = begin; piece != end; piece += step) {
    if (map_piece(import, theirs.begin + (piece - begin), piece, *pool)) continue;
    unmap_pieces(begin, end);
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Device* device = pool->properties().device;
  const CUdeviceptr found = begin + (exported.address - theirs.begin);
  pool->count_import(1);
  space().add({.address = found,
               .size = exported.size,
               .kind = AllocationKind::Async,
               .device = device != nullptr ? device->ordinal() : -1,
               .pool = pool});
  *address = found;
  return CUDA_SUCCESS;
}

void unmap_imported(const Allocation& allocation) {
  const Pieces ours = pieces_of(allocation.address, allocation.size, piece_size());
  unmap_pieces(ours.begin, ours.end);
  if (const auto pool = allocation.pool.lock()) pool->count_import(-1);
}

}  // namespace cuvmm::sim
