// SPDX-License-Identifier: Apache-2.0
// Two models that take turns under one limit: each has addresses for all memory that it ever needs,
// and memory while it works. Its pointers never change.
//
//   c++ -std=c++20 two_models.cpp -o two_models $(pkg-config --cflags --libs cuvmm) -ldl
//
// README.md says how to build it if the compiler does not find cuvmm or cuda.h.
//
// Runs on the machine's card, or on the simulated driver (LD_LIBRARY_PATH=…/lib/cuvmm/sim). Exit
// status 0 if everything is right.
#include <cstdio>
#include <string>

#include "cuvmm/shared_pool.hpp"
#include "driver_calls.hpp"
#include "must.hpp"

const char* const program = "two_models";

namespace {

constexpr std::uint64_t MiB = 1 << 20;
constexpr std::uint64_t GiB = 1 << 30;

// A model with weights that can be reloaded, and a cache that it can do without.
class Model {
 public:
  Model(cuvmm::SharedPool& pool, std::string name, unsigned char weight)
      : pool_(pool), name_(std::move(name)), weight_(weight) {
    base_ =
        must(pool_.register_model(name_, 16 * GiB,
                                  {.reclaim = [this](std::uint64_t wanted) { give_back(wanted); },
                                   .lost = [this](std::uint64_t, std::uint64_t) { ++losses_; }}));
  }

  // Call this before each request. Loads weights only if they were evicted.
  void serve() {
    const bool first = weights_.size == 0;
    if (first) weights_ = must(pool_.allocate(name_, 300 * MiB));
    const bool kept = must(pool_.activate(name_)) == cuvmm::Activation::Kept;
    if (first || !kept) {
      must(CALL(cuMemsetD8)(weights_.address, weight_, weights_.size), "cuMemsetD8");
      ++loads_;
    }
    if (cache_.size == 0) cache_ = must(pool_.allocate(name_, 100 * MiB));
    must(CALL(cuMemsetD8)(cache_.address, 255, cache_.size), "cuMemsetD8");
    unsigned char weight = 0;
    must(CALL(cuMemcpyDtoH)(&weight, weights_.address + 123 * MiB, 1), "cuMemcpyDtoH");
    must(weight == weight_, "the weights have changed");
    // The device must finish its work on this memory before another model takes it.
    must(pool_.fence(name_, nullptr));
  }
  void rest() { must(pool_.deactivate(name_)); }

  void print() const {
    const cuvmm::ModelStats stats = must(pool_.model_stats(name_));
    const cuvmm::SharedPoolStats all = pool_.stats();
    std::printf(
        "%-8s serving, %5.0f MiB at 0x%llx, weight loads: %d; all models: %5.0f of %.0f MiB\n",
        name_.c_str(), static_cast<double>(stats.memory.physical_bytes) / MiB,
        static_cast<unsigned long long>(base_), loads_,
        static_cast<double>(all.physical_bytes) / MiB,
        static_cast<double>(all.physical_limit) / MiB);
    must(all.physical_bytes <= all.physical_limit, "the pool exceeds its limit");
  }
  int loads() const { return loads_; }
  int losses() const { return losses_; }

 private:
  // Called when another model needs memory.
  void give_back(std::uint64_t) {
    if (cache_.size == 0) return;
    must(pool_.deallocate(name_, cache_));
    cache_ = {};
  }

  cuvmm::SharedPool& pool_;
  const std::string name_;
  const unsigned char weight_;
  std::uint64_t base_ = 0;
  cuvmm::PoolAllocation weights_;  // of size 0 until allocated
  cuvmm::PoolAllocation cache_;
  int loads_ = 0;
  int losses_ = 0;
};

void take_turns(Model& one, Model& other) {
  for (int turn = 0; turn < 2; ++turn) {
    for (Model* model : {&one, &other}) {
      model->serve();
      model->print();
      model->rest();
    }
  }
}

}  // namespace

int main() {
  CUcontext context = nullptr;
  must(CALL(cuInit)(0), "cuInit");
  must(CALL(cuDevicePrimaryCtxRetain)(&context, 0), "cuDevicePrimaryCtxRetain");
  must(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");

  std::printf("With 512 MiB there is room for one model of 400 MiB:\n");
  auto small = must(cuvmm::SharedPool::create(512 * MiB));
  {
    Model chat{small, "chat", 7};
    Model vision{small, "vision", 9};
    take_turns(chat, vision);
    must(chat.loads() == 2 && chat.losses() >= 1,
         "chat did not lose its weights and load them again");
    must(small.unregister_model("chat"));
    must(small.unregister_model("vision"));
  }

  std::printf("With 800 MiB both stay, and neither loads its weights twice:\n");
  auto large = must(cuvmm::SharedPool::create(800 * MiB));
  Model chat{large, "chat", 7};
  Model vision{large, "vision", 9};
  take_turns(chat, vision);
  must(chat.loads() == 1 && vision.loads() == 1,
       "a model lost its weights although there was room");
  must(large.unregister_model("chat"));
  must(large.unregister_model("vision"));
  std::printf("all weights read back as loaded\n");
  return 0;
}
