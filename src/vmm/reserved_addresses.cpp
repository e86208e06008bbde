// SPDX-License-Identifier: Apache-2.0
#include "vmm/reserved_addresses.hpp"

#include <iterator>
#include <map>
#include <shared_mutex>

#include "base/lock.hpp"
#include "base/made_once.hpp"

namespace cuvmm::reserved_addresses {
namespace {

struct Book {
  mutable SharedLock lock{LockOrder::ReservedAddresses};  // guards what follows
  std::map<CUdeviceptr, Size> sizes;                      // by first address; a few dozen
};

// Never destroyed, because destructors of other statics may still hold reservations.
constinit MadeOnce<Book> book;

}  // namespace

void add(CUdeviceptr address, Size size) {
  Book& all = book.get();
  const Writing writing{all.lock};
  all.sizes[address] = size;
}

void remove(CUdeviceptr address) {
  Book& all = book.get();
  const Writing writing{all.lock};
  all.sizes.erase(address);
}

bool intersect(CUdeviceptr address, Size size) {
  if (size == 0) return false;
  const CUdeviceptr last = size - 1 > ~address ? ~CUdeviceptr{0} : address + size - 1;
  const Book& all = book.get();
  const Reading reading{all.lock};
  const auto above = all.sizes.upper_bound(last);
  if (above == all.sizes.begin()) return false;
  const auto& [begin, length] = *std::prev(above);
  return address < begin + length;
}

void forget_after_fork() {
  book.forget_after_fork();
}

}  // namespace cuvmm::reserved_addresses
