// SPDX-License-Identifier: Apache-2.0
#include "cli/frameworks.hpp"

#include <array>
#include <cstdlib>
#include <fstream>

namespace cuvmm::cli {
namespace {

struct Setting {
  const char* name;
  const char* value;
};
// PyTorch's variable has two names; the version decides which one counts.
constexpr std::array pytorch{Setting{"PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync"},
                             Setting{"PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync"}};
constexpr std::array jax{Setting{"XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async"},
                         Setting{"XLA_PYTHON_CLIENT_PREALLOCATE", "false"}};

template <class Settings>
bool is_any_set(const Settings& settings) {
  for (const Setting& setting : settings) {
    if (std::getenv(setting.name) != nullptr) return true;
  }
  return false;
}

// Sets all of a framework's variables or none, so that they never disagree. Returns whether it set
// them; `now` becomes their present value.
template <class Settings>
bool set(const Settings& settings, std::string& now) {
  const bool is_chosen = is_any_set(settings);
  for (const Setting& setting : settings) {
    if (!is_chosen) setenv(setting.name, setting.value, 1);
    const char* const value = std::getenv(setting.name);
    if (value == nullptr) continue;
    now += (now.empty() ? "" : ", ") + std::string{setting.name} + "=" + printable(value);
  }
  return !is_chosen;
}

std::string line_on_pytorch() {
  std::string now;
  if (set(pytorch, now)) {
    return "PyTorch: set " + now +
           "; it takes memory from the driver instead of its own cache, so "
           "torch.cuda.memory._snapshot() and _record_memory_history() do not work: use --trace";
  }
  std::string line = "PyTorch: kept " + now;
  if (now.find("backend:cudaMallocAsync") != std::string::npos) return line;
  if (now.find("expandable_segments:True") != std::string::npos) {
    return line +
           ": it maps its own memory, which cuvmm limits, spills and pauses but does not "
           "compact; unset it to let cuvmm serve PyTorch";
  }
  return line +
         ": it keeps memory in its own cache, whose free memory cuvmm cannot use; unset it "
         "to let cuvmm serve PyTorch";
}

std::string line_on_jax() {
  std::string now;
  return set(jax, now) ? "JAX: set " + now : "JAX: kept " + now;
}

}  // namespace

std::vector<std::string> let_frameworks_use_the_driver() {
  return {line_on_pytorch(), line_on_jax()};
}

FrameworkWatch::FrameworkWatch() : is_needed_(!is_any_set(pytorch)) {}

void FrameworkWatch::look_at(pid_t process) {
  std::ifstream maps{"/proc/" + std::to_string(process) + "/maps"};
  std::string line;
  while (!found_ && std::getline(maps, line)) {
    found_ = line.find("libc10_cuda.so") != std::string::npos;
  }
}

std::string FrameworkWatch::suggestion() const {
  if (!found_) return {};
  return "PyTorch kept memory in its own cache; `cuvmm run --frameworks` lets it take memory that "
         "cuvmm can share out";
}

}  // namespace cuvmm::cli
