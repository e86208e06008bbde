// SPDX-License-Identifier: Apache-2.0
// Uses comfy-aimdo as ComfyUI does. It overwrites the first instructions of the driver's functions
// that allocate and free memory, so that it counts the memory of all programs' libraries, and maps
// a model's weights page by page, which it gives up when device memory runs short.
//
//   cuvmm_test_aimdo LIBRARY FILE    FILE: where it may write the file that it reads weights from
#include <cuda.h>
#include <fcntl.h>
#include <unistd.h>

#include "stages.hpp"

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;
constexpr std::size_t page_size = 32 * MiB;  // of comfy-aimdo
constexpr std::size_t pages = 3;

void check(CUresult answer, const char* what) {
  if (answer != CUDA_SUCCESS) stages::fail(what, answer);
}

struct Aimdo {
  void (*set_log_level_none)();
  bool (*plat_init)();
  void (*plat_cleanup)();
  bool (*init)(const int*, const std::uint64_t*, std::size_t);
  void (*cleanup)();
  void* (*get_devctx)(int);
  std::uint64_t (*get_total_vram_usage)(void*);
  void* (*vbar_allocate)(void*, std::uint64_t, int, bool (*)(std::uint64_t, std::uint64_t));
  void (*vbar_free)(void*, void*);
  std::uint64_t (*vbar_get)(void*, void*);
  void (*vbar_prioritize)(void*, void*, std::uint64_t);
  int (*vbar_fault)(void*, void*, std::uint64_t, std::uint64_t, std::uint32_t*);
  bool (*vbar_unpin)(void*, void*, std::uint64_t, std::uint64_t);
  std::size_t (*vbar_loaded_size)(void*, void*);
  std::int64_t (*vbar_free_memory)(void*, void*, std::uint64_t);
  void* (*vrambuf_create)(int, std::size_t);
  bool (*vrambuf_grow)(void*, std::size_t);
  std::uint64_t (*vrambuf_get)(void*);
  bool (*vrambuf_destroy)(void*);
  void* (*malloc_graph_create)(void*, CUstream, bool);
  bool (*malloc_graph_push)(void*, const char*);
  int (*malloc_graph_pop)(void*);
  void (*malloc_graph_destroy)(void*);
  bool (*hostbuf_file_reader_read)(int, std::uint64_t, std::uint64_t, std::uint64_t, CUstream,
                                   std::uint64_t, bool);
  void (*hostbuf_file_reader_cleanup)();
};

Aimdo find_aimdo(const char* path) {
  Aimdo aimdo{};
  void* const library = stages::open_library(path);
#define FIND(name) stages::find(aimdo.name, library, #name)
  FIND(set_log_level_none);
  FIND(plat_init);
  FIND(plat_cleanup);
  FIND(init);
  FIND(cleanup);
  FIND(get_devctx);
  FIND(get_total_vram_usage);
  FIND(vbar_allocate);
  FIND(vbar_free);
  FIND(vbar_get);
  FIND(vbar_prioritize);
  FIND(vbar_fault);
  FIND(vbar_unpin);
  FIND(vbar_loaded_size);
  FIND(vbar_free_memory);
  FIND(vrambuf_create);
  FIND(vrambuf_grow);
  FIND(vrambuf_get);
  FIND(vrambuf_destroy);
  FIND(malloc_graph_create);
  FIND(malloc_graph_push);
  FIND(malloc_graph_pop);
  FIND(malloc_graph_destroy);
  FIND(hostbuf_file_reader_read);
  FIND(hostbuf_file_reader_cleanup);
#undef FIND
  aimdo.set_log_level_none();
  return aimdo;
}

// One pair of functions, as the program got it.
struct Route {
  const char* name;
  CUresult (*allocate)(CUdeviceptr*, std::size_t) = cuMemAlloc;
  CUresult (*release)(CUdeviceptr) = cuMemFree;
};

void* proc_address(const char* name) {
  void* found = nullptr;
  check(cuGetProcAddress(name, &found, 13000, CU_GET_PROC_ADDRESS_DEFAULT, nullptr), name);
  return found;
}

std::vector<Route> find_routes() {
  void* const driver = stages::open_library("libcuda.so.1");
  std::vector<Route> routes{{"linked"}, {"dlsym"}, {"cuGetProcAddress"}};
  stages::find(routes[1].allocate, driver, "cuMemAlloc_v2");
  stages::find(routes[1].release, driver, "cuMemFree_v2");
  routes[2].allocate = reinterpret_cast<decltype(Route::allocate)>(proc_address("cuMemAlloc"));
  routes[2].release = reinterpret_cast<decltype(Route::release)>(proc_address("cuMemFree"));
  return routes;
}

class Program {
 public:
  Program(const Aimdo& aimdo, const std::vector<Route>& routes, const char* file)
      : aimdo_{aimdo}, routes_{routes}, file_{file} {
    check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }

  // Prints what comfy-aimdo counts: it misses nothing, whichever way a function was found.
  void count_allocations() {
    for (const Route& route : routes_) {
      CUdeviceptr memory = 0;
      check(route.allocate(&memory, 16 * MiB), "cuMemAlloc");
      report(route.name);
      check(route.release(memory), "cuMemFree");
      report("freed");
    }
    CUdeviceptr memory = 0;
    check(cuMemAllocAsync(&memory, 32 * MiB, stream_), "cuMemAllocAsync");
    report("stream-ordered");
    check(cuMemFreeAsync(memory, stream_), "cuMemFreeAsync");
    check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
    report("freed");
  }

  // The weights come from a file; what is given up is read again.
  void load_and_evict_weights() {
    write_file();
    void* const device = aimdo_.get_devctx(0);
    void* const weights = aimdo_.vbar_allocate(device, pages * page_size, 0, nullptr);
    stages::expect(weights != nullptr, "vbar_allocate");
    aimdo_.vbar_prioritize(device, weights, ~std::uint64_t{0});
    load(weights);
    report("weights");
    stages::reach("loaded");
    expect_weights(weights, pages);

    CUdeviceptr activations = 0;
    check(cuMemAlloc(&activations, 192 * MiB), "cuMemAlloc");
    check(cuMemsetD8(activations, 1, 192 * MiB), "cuMemsetD8");
    const std::size_t left = aimdo_.vbar_loaded_size(device, weights) / page_size;
    std::printf("%zu pages of %zu MiB\n", left, left * page_size / MiB);
    report("with activations");
    stages::reach("short of memory");
    expect_weights(weights, left);
    check(cuMemFree(activations), "cuMemFree");

    aimdo_.vbar_prioritize(device, weights, ~std::uint64_t{0});
    stages::expect(aimdo_.vbar_free_memory(device, weights, page_size) >= 0, "vbar_free_memory");
    report("given up");
    stages::reach("evicted");
    aimdo_.vbar_prioritize(device, weights, ~std::uint64_t{0});
    load(weights);
    report("weights");
    expect_weights(weights, pages);
    aimdo_.vbar_free(device, weights);
    aimdo_.hostbuf_file_reader_cleanup();
    report("freed");
  }

  void grow_a_buffer() {
    void* const buffer = aimdo_.vrambuf_create(0, 256 * MiB);
    stages::expect(buffer != nullptr && aimdo_.vrambuf_grow(buffer, 20 * MiB), "vrambuf_grow");
    const CUdeviceptr address = aimdo_.vrambuf_get(buffer);
    const std::vector<std::uint32_t> first = stages::words(20 * MiB, 50);
    check(cuMemcpyHtoD(address, first.data(), 20 * MiB), "write");
    stages::expect(aimdo_.vrambuf_grow(buffer, 70 * MiB), "vrambuf_grow");
    report("grown");
    stages::reach("grown");
    std::vector<std::uint32_t> host(first.size());
    check(cuMemcpyDtoH(host.data(), address, 20 * MiB), "read");
    stages::expect(host == first, "a buffer that grew keeps its contents");
    check(cuMemcpyHtoD(address + 50 * MiB, first.data(), 20 * MiB), "write");
    stages::expect(aimdo_.vrambuf_destroy(buffer), "vrambuf_destroy");
    report("freed");
  }

  // Once recorded, a step's stream-ordered memory has the same addresses in every step.
  void replay_allocations() {
    void* const recording = aimdo_.malloc_graph_create(aimdo_.get_devctx(0), stream_, false);
    stages::expect(recording != nullptr, "malloc_graph_create");
    for (unsigned char step = 1; step <= 3; ++step) {
      stages::expect(aimdo_.malloc_graph_push(recording, "step"), "malloc_graph_push");
      CUdeviceptr first = 0;
      CUdeviceptr second = 0;
      unsigned char copied = 0;
      check(cuMemAllocAsync(&first, 8 * MiB, stream_), "cuMemAllocAsync");
      check(cuMemsetD8Async(first, step, 8 * MiB, stream_), "cuMemsetD8Async");
      check(cuMemAllocAsync(&second, 24 * MiB, stream_), "cuMemAllocAsync");
      check(cuMemcpyDtoDAsync(second, first, 8 * MiB, stream_), "copy");
      check(cuMemFreeAsync(first, stream_), "cuMemFreeAsync");
      check(cuMemcpyDtoHAsync(&copied, second + 8 * MiB - 1, 1, stream_), "read");
      check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
      stages::expect(copied == step, "a step finds what it has written");
      check(cuMemFreeAsync(second, stream_), "cuMemFreeAsync");
      stages::expect(aimdo_.malloc_graph_pop(recording) == 1, "malloc_graph_pop");
      report("recorded");
      stages::reach("stepped");
    }
    aimdo_.malloc_graph_destroy(recording);
    report("freed");
  }

  void end() { check(cuStreamDestroy(stream_), "cuStreamDestroy"); }

 private:
  void report(const char* what) const {
    std::printf(
        "%s: %llu MiB\n", what,
        static_cast<unsigned long long>(aimdo_.get_total_vram_usage(aimdo_.get_devctx(0)) / MiB));
  }

  void write_file() {
    const int file = ::open(file_, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    for (std::uint32_t page = 0; page < pages; ++page) {
      const std::vector<std::uint32_t> host = stages::words(page_size, page);
      stages::expect(::write(file, host.data(), page_size) == ssize_t{page_size}, "write the file");
    }
    ::close(file);
  }

  void load(void* weights) {
    void* const device = aimdo_.get_devctx(0);
    std::uint32_t signature[pages + 2] = {};
    const int answer = aimdo_.vbar_fault(device, weights, 0, pages * page_size, signature);
    if (answer != 0) stages::fail("vbar_fault", answer);
    const int file = ::open(file_, O_RDONLY);
    stages::expect(
        aimdo_.hostbuf_file_reader_read(0, static_cast<std::uint64_t>(file), 0, pages * page_size,
                                        stream_, aimdo_.vbar_get(device, weights), false),
        "read the file");
    check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
    ::close(file);
    stages::expect(aimdo_.vbar_unpin(device, weights, 0, pages * page_size), "vbar_unpin");
  }

  void expect_weights(void* weights, std::size_t loaded) {
    const CUdeviceptr address = aimdo_.vbar_get(aimdo_.get_devctx(0), weights);
    std::vector<std::uint32_t> host(page_size / 4);
    for (std::size_t page = 0; page < loaded; ++page) {
      check(cuMemcpyDtoH(host.data(), address + page * page_size, page_size), "read");
      stages::expect(host == stages::words(page_size, static_cast<std::uint32_t>(page)),
                     "weights keep their contents");
    }
  }

  const Aimdo& aimdo_;
  const std::vector<Route>& routes_;
  const char* file_;
  CUstream stream_ = nullptr;
};

}  // namespace

int main(int count, char** words) {
  if (count < 3) stages::fail("usage: LIBRARY FILE", count);
  CUdevice device = 0;
  CUcontext context = nullptr;
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, device), "retain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  const std::vector<Route> routes = find_routes();  // before the functions are overwritten
  const Aimdo aimdo = find_aimdo(words[1]);
  for (const bool first : {true, false}) {  // hooks can be set again
    const int devices[] = {0};
    const std::uint64_t headrooms[] = {0};
    stages::expect(aimdo.plat_init(), "plat_init");
    stages::expect(aimdo.init(devices, headrooms, 1), "init");
    Program program{aimdo, routes, words[2]};
    program.count_allocations();
    if (first) {
      program.load_and_evict_weights();
      program.grow_a_buffer();
      program.replay_allocations();
    }
    program.end();
    aimdo.cleanup();
    aimdo.plat_cleanup();
    for (const Route& route : routes) {
      CUdeviceptr memory = 0;
      check(route.allocate(&memory, MiB), "cuMemAlloc without comfy-aimdo");
      check(route.release(memory), "cuMemFree without comfy-aimdo");
    }
    stages::reach("hooks are gone");
  }
  check(cuDevicePrimaryCtxRelease(device), "release");
  return 0;
}
