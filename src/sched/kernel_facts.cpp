// SPDX-License-Identifier: Apache-2.0
#include "sched/kernel_facts.hpp"

#include <algorithm>
#include <mutex>
#include <shared_mutex>

namespace cuvmm {
namespace {

constexpr std::size_t most_parameters = 4096;
constexpr std::size_t most_launches = 16384;

}  // namespace

std::shared_ptr<const KernelFacts> KnownKernels::find(CUfunction function, int device) {
  if (function == nullptr) return nullptr;
  {
    const Reading reading{lock_};
    const auto found = known_.find({function, device});
    if (found != known_.end()) return found->second;
  }
  auto facts = ask(function, device);
  if (facts == nullptr) return nullptr;
  const Writing writing{lock_};
  return known_.emplace(Key{function, device}, std::move(facts)).first->second;
}

bool KnownKernels::was_taken(std::uint64_t launch) const {
  const Reading reading{lock_};
  return taken_.contains(launch);
}

void KnownKernels::taken(std::uint64_t launch) {
  const Writing writing{lock_};
  if (taken_.size() >= most_launches) taken_.clear();
  taken_.insert(launch);
}

void KnownKernels::forget_all() {
  const Writing writing{lock_};
  known_.clear();
  taken_.clear();
}

// Launches take either kind of handle; each of the two functions accepts only one kind.
bool KnownKernels::ask_parameters(CUfunction function, KernelFacts& facts) const {
  for (std::size_t index = 0; index < most_parameters; ++index) {
    std::size_t offset = 0;
    std::size_t size = 0;
    CUresult answer = driver_.cuFuncGetParamInfo(function, index, &offset, &size);
    if (answer == CUDA_ERROR_INVALID_HANDLE) {
      answer =
          driver_.cuKernelGetParamInfo(reinterpret_cast<CUkernel>(function), index, &offset, &size);
    }
    if (answer == CUDA_ERROR_INVALID_VALUE) return true;  // past the last parameter
    if (answer != CUDA_SUCCESS) return false;
    facts.parameters.push_back(
        {static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(size)});
    facts.parameter_bytes =
        std::max(facts.parameter_bytes, static_cast<std::uint32_t>(offset + size));
  }
  return false;
}

int KnownKernels::attribute(CUfunction_attribute which, CUfunction function, int device) const {
  int value = 0;
  if (driver_.cuFuncGetAttribute(&value, which, function) == CUDA_SUCCESS) return value;
  const auto kernel = reinterpret_cast<CUkernel>(function);
  return driver_.cuKernelGetAttribute(&value, which, kernel, device) == CUDA_SUCCESS ? value : 0;
}

std::shared_ptr<const KernelFacts> KnownKernels::ask(CUfunction function, int device) const {
  auto facts = std::make_shared<KernelFacts>();
  if (!ask_parameters(function, *facts)) return nullptr;
  facts->most_threads = attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function, device);
  facts->most_dynamic_shared =
      attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function, device);
  return facts->most_threads > 0 ? facts : nullptr;
}

}  // namespace cuvmm
