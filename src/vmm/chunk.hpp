// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "base/fd.hpp"
#include "base/size.hpp"
#include "driver/driver.hpp"
#include "vmm/location.hpp"

namespace cuvmm {

enum class Export : std::uint8_t { No, Yes };

// Physical memory behind one driver handle: indivisible, and mapped only as a whole. Owns the
// handle; the memory itself lives on while it is mapped anywhere or another process holds it.
class Chunk {
 public:
  // `size` is a multiple of granularity_of(where).
  static Result<Chunk> create(const Driver& driver, Size size, Location where, Export exportable);

  // A chunk of another process. The driver does not tell how large it is: the exporter must, and a
  // wrong size is refused when the chunk is mapped. The descriptor stays the caller's.
  static Result<Chunk> import_fd(const Driver& driver, const Fd& fd, Size size);

  Chunk(Chunk&& other) noexcept;
  Chunk& operator=(Chunk&& other) noexcept;
  ~Chunk();

  // A descriptor that another process can import. Its holders and importers keep the
  // memory alive.
  Result<Fd> export_fd() const;

  // Releases the handle before the destructor would, and says so when the driver refuses; the
  // handle is then still owned.
  Result<void> release();

  CUmemGenericAllocationHandle handle() const { return handle_; }
  Size size() const { return size_; }
  Location location() const { return location_; }
  bool exportable() const { return exportable_ == Export::Yes; }
  bool imported() const { return imported_; }

 private:
  Chunk(const Driver& driver, CUmemGenericAllocationHandle handle, Size size, Location where,
        Export exportable, bool imported)
      : driver_(&driver),
        handle_(handle),
        size_(size),
        location_(where),
        exportable_(exportable),
        imported_(imported) {}

  const Driver* driver_;  // nullptr: nothing is owned
  CUmemGenericAllocationHandle handle_;
  Size size_;
  [[no_unique_address]] Location location_;  // its last bytes are the next members'
  Export exportable_;
  bool imported_;
};

// The step that sizes and offsets of memory at `where` are multiples of.
Result<Size> granularity_of(const Driver& driver, Location where);

}  // namespace cuvmm
