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
// handle; the memory itself lives while it is mapped anywhere or another process holds it.
class Chunk {
 public:
  // `size` must be a multiple of granularity_of(where).
  static Result<Chunk> create(const Driver& driver, Size size, Location where, Export exportable);

  // For the program's own chunks, which traces do not attribute to cuvmm. create_as() creates one
  // with the properties that the program requested; adopt() takes over one of its references.
  static Result<Chunk> create_as(const Driver& driver, Size size,
                                 const CUmemAllocationProp& properties);
  static Chunk adopt(const Driver& driver, CUmemGenericAllocationHandle handle, Size size,
                     const CUmemAllocationProp& properties);

  // Imports a chunk of another process. The driver does not report its size, so the exporter must;
  // the driver refuses to map a chunk with a wrong size. The caller keeps the descriptor.
  static Result<Chunk> import_fd(const Driver& driver, const Fd& fd, Size size);

  Chunk(Chunk&& other) noexcept;
  Chunk& operator=(Chunk&& other) noexcept;
  ~Chunk();

  // A descriptor that another process can import. The memory lives while any process holds the
  // descriptor or has imported it.
  Result<Fd> export_fd() const;

  // Releases the handle before the destructor would. If the driver refuses, returns the error and
  // still owns the handle.
  Result<void> release();

  CUmemGenericAllocationHandle handle() const { return handle_; }
  Size size() const { return size_; }
  Location location() const { return location_; }
  bool exportable() const { return exportable_ == Export::Yes; }
  bool imported() const { return origin_ == Origin::Imported; }

 private:
  enum class Origin : std::uint8_t { Created, Imported, Program };

  Chunk(const Driver& driver, CUmemGenericAllocationHandle handle, Size size, Location where,
        Export exportable, Origin origin);

  const Driver* driver_;  // nullptr: nothing is owned
  CUmemGenericAllocationHandle handle_;
  Size size_;
  [[no_unique_address]] Location location_;  // the next members use its tail padding
  Export exportable_;
  Origin origin_;
};

// The granularity of sizes and offsets of memory at `where`.
Result<Size> granularity_of(const Driver& driver, Location where);

}  // namespace cuvmm
