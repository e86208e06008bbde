// SPDX-License-Identifier: Apache-2.0
#include "vmm/reserved_addresses.hpp"

#include <iterator>
#include <map>
#include <shared_mutex>

#include "base/lock.hpp"

namespace cuvmm::reserved_addresses {
namespace {

struct Book {
  mutable SharedLock lock{LockOrder::ReservedAddresses};  // guards what follows
  std::map<CUdeviceptr, Size> sizes;                      // by first address; a few dozen
};

// Leaked, because destructors of other statics may still hold reservations.
Book*& book() {
  static Book* one = new Book;
  return one;
}

}  // namespace

void add(CUdeviceptr address, Size size) {
  Book& all = *book();
  const Writing writing{all.lock};
  all.sizes[address] = size;
}

void remove(CUdeviceptr address) {
  Book& all = *book();
  const Writing writing{all.lock};
  all.sizes.erase(address);
}

bool intersect(CUdeviceptr address, Size size) {
  if (size == 0) return false;
  const CUdeviceptr last = size - 1 > ~address ? ~CUdeviceptr{0} : address + size - 1;
  const Book& all = *book();
  const Reading reading{all.lock};
  const auto above = all.sizes.upper_bound(last);
  if (above == all.sizes.begin()) return false;
  const auto& [begin, length] = *std::prev(above);
  return address < begin + length;
}

void forget_after_fork() {
  book() = new Book;
}

}  // namespace cuvmm::reserved_addresses
