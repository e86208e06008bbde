// SPDX-License-Identifier: Apache-2.0
#include "sim/shared_record.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace cuvmm::sim {

std::shared_ptr<SharedRecord> SharedRecord::map(Fd file) {
  if (!file.is_open()) return nullptr;
  // A new file is all zeros, which is the initial state of the counts.
  void* counts =
      mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (counts == MAP_FAILED) return nullptr;
  return std::shared_ptr<SharedRecord>{
      new SharedRecord{std::move(file), static_cast<Counts*>(counts)}};
}

std::shared_ptr<SharedRecord> SharedRecord::create() {
  Fd file{memfd_create("cuvmm-sim-event", MFD_CLOEXEC)};
  if (!file.is_open() || ftruncate(file.number(), sizeof(Counts)) != 0) return nullptr;
  return map(std::move(file));
}

std::shared_ptr<SharedRecord> SharedRecord::open(const SharedFile& shared) {
  Fd file = open_shared(shared);
  struct stat status {};
  if (!file.is_open() || fstat(file.number(), &status) != 0 || status.st_size != sizeof(Counts)) {
    return nullptr;
  }
  return map(std::move(file));
}

SharedRecord::~SharedRecord() {
  munmap(counts_, sizeof(Counts));
}

std::optional<SharedFile> SharedRecord::file() const {
  struct stat status {};
  if (fstat(file_.number(), &status) != 0) return std::nullopt;
  return SharedFile{static_cast<std::int32_t>(getpid()), file_.number(), status.st_ino};
}

void SharedRecord::reach(std::uint64_t record) {
  std::uint64_t known = counts_->reached.load();
  while (known < record && !counts_->reached.compare_exchange_weak(known, record)) {
  }
}

void SharedRecord::wait_for(std::uint64_t record) const {
  using namespace std::chrono_literals;
  while (!is_reached(record)) std::this_thread::sleep_for(50us);
}

}  // namespace cuvmm::sim
