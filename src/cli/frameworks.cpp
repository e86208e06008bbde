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
// PyTorch's variable has two names, and which one counts depends on the version.
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

// All of a framework's variables, or none: half of them would say two things.
template <class Settings>
void set(const Settings& settings, std::string& done, std::string& kept) {
  const bool is_chosen = is_any_set(settings);
  for (const Setting& setting : settings) {
    if (!is_chosen) setenv(setting.name, setting.value, 1);
    if (is_chosen && std::getenv(setting.name) == nullptr) continue;
    std::string& list = is_chosen ? kept : done;
    list += (list.empty() ? "" : ", ") + std::string{setting.name};
  }
}

}  // namespace

std::string let_frameworks_use_the_driver() {
  std::string done;
  std::string kept;
  set(pytorch, done, kept);
  set(jax, done, kept);
  std::string line = "PyTorch and JAX take stream-ordered memory";
  if (!done.empty()) line += "; set " + done;
  if (!kept.empty()) line += "; kept as they were " + kept;
  return line;
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
