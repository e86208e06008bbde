// SPDX-License-Identifier: Apache-2.0
// Does one operation of every kind that a trace records, once, and prints the handles that it got,
// so that a reader of the trace can look for exactly those.
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuvmm/sim.h"
#include "routes.hpp"

namespace {

void* library = driver_library();

template <class Function>
Function find(const char* symbol) {
  const auto found = reinterpret_cast<Function>(dlsym(library, symbol));
  require(found, symbol);
  return found;
}
#define CU(symbol, ...) find<CUresult (*)(__VA_ARGS__)>(#symbol)

void check(CUresult answer, const char* step) {
  if (answer == CUDA_SUCCESS) return;
  std::printf("%s answered %d\n", step, static_cast<int>(answer));
  std::exit(1);
}

void tell(const char* name, const void* handle) {
  std::printf("%s %llu\n", name,
              static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(handle)));
}
void tell(const char* name, CUdeviceptr address) {
  std::printf("%s %llu\n", name, static_cast<unsigned long long>(address));
}

const char* const ptx =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry events_kernel(.param .u64 to)\n{\n  ret;\n}\n";

CUstream stream = nullptr;
CUevent event = nullptr;
CUdeviceptr memory = 0;
CUdeviceptr other = 0;
constexpr std::size_t size = 4096;

void begin() {
  CUcontext primary = nullptr;
  CUcontext context = nullptr;
  check(CU(cuInit, unsigned)(0), "cuInit");
  check(CU(cuDevicePrimaryCtxRetain, CUcontext*, CUdevice)(&primary, 0), "retain");
  check(CU(cuCtxSetCurrent, CUcontext)(primary), "set current");
  check(CU(cuCtxCreate_v2, CUcontext*, unsigned, CUdevice)(&context, 0, 0), "create context");
  tell("context", context);
  check(CU(cuCtxDestroy_v2, CUcontext)(context), "destroy context");
  check(CU(cuCtxSetCurrent, CUcontext)(primary), "set current");
  check(
      CU(cuStreamCreateWithPriority, CUstream*, unsigned, int)(&stream, CU_STREAM_NON_BLOCKING, 0),
      "create stream");
  tell("stream", stream);
  check(CU(cuEventCreate, CUevent*, unsigned)(&event, CU_EVENT_DISABLE_TIMING), "create event");
  tell("event", event);
  check(CU(cuMemAlloc_v2, CUdeviceptr*, size_t)(&memory, size), "allocate");
  check(CU(cuMemAlloc_v2, CUdeviceptr*, size_t)(&other, size), "allocate");
  tell("memory", memory);
  tell("other", other);
}

void copy_and_set() {
  std::vector<char> host(size, 7);
  check(CU(cuMemcpyHtoD_v2, CUdeviceptr, const void*, size_t)(memory, host.data(), size), "HtoD");
  check(CU(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, size_t, CUstream)(other, memory, size,
                                                                             stream),
        "DtoDAsync");
  CUDA_MEMCPY2D shape{};
  shape.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.srcDevice = memory;
  shape.srcPitch = 64;
  shape.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.dstDevice = other;
  shape.dstPitch = 64;
  shape.WidthInBytes = 32;
  shape.Height = 10;
  check(CU(cuMemcpy2DAsync_v2, const CUDA_MEMCPY2D*, CUstream)(&shape, stream), "2D");
  check(CU(cuMemsetD32Async, CUdeviceptr, unsigned, size_t, CUstream)(memory, 9, 100, stream),
        "set");
}

void launch_work() {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  check(CU(cuModuleLoadData, CUmodule*, const void*)(&module, ptx), "load");
  check(CU(cuModuleGetFunction, CUfunction*, CUmodule, const char*)(&function, module,
                                                                    "events_kernel"),
        "function");
  tell("function", function);
  void* parameters[] = {&memory};
  check(CU(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
           unsigned, CUstream, void**,
           void**)(function, 2, 3, 1, 32, 1, 1, 128, stream, parameters, nullptr),
        "launch");
  check(CU(cuLaunchHostFunc, CUstream, CUhostFn, void*)(
            stream, [](void*) {}, nullptr),
        "host");
}

void order() {
  check(CU(cuEventRecord, CUevent, CUstream)(event, stream), "record");
  check(CU(cuStreamWaitEvent, CUstream, CUevent, unsigned)(nullptr, event, 0), "stream wait");
  check(CU(cuStreamWriteValue32_v2, CUstream, CUdeviceptr, cuuint32_t, unsigned)(stream, memory, 5,
                                                                                 0),
        "write value");
  check(CU(cuStreamWaitValue32_v2, CUstream, CUdeviceptr, cuuint32_t, unsigned)(
            stream, memory, 5, CU_STREAM_WAIT_VALUE_EQ),
        "wait value");
  check(CU(cuEventSynchronize, CUevent)(event), "wait for the event");
  check(CU(cuStreamSynchronize, CUstream)(stream), "wait for the stream");
  check(CU(cuCtxSynchronize)(), "wait for the context");
}

void capture() {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  check(CU(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode*)(&mode), "exchange");
  check(CU(cuStreamBeginCapture_v2, CUstream, CUstreamCaptureMode)(
            stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        "begin");
  check(CU(cuMemsetD8Async, CUdeviceptr, unsigned char, size_t, CUstream)(other, 1, 77, stream),
        "captured set");
  check(CU(cuStreamEndCapture, CUstream, CUgraph*)(stream, &graph), "end");
  tell("graph", graph);
  check(CU(cuGraphInstantiateWithFlags, CUgraphExec*, CUgraph, unsigned long long)(&executable,
                                                                                   graph, 0),
        "instantiate");
  tell("executable", executable);
  check(CU(cuGraphLaunch, CUgraphExec, CUstream)(executable, stream), "launch the graph");
  check(CU(cuStreamSynchronize, CUstream)(stream), "wait");
  check(CU(cuGraphExecDestroy, CUgraphExec)(executable), "destroy");
  check(CU(cuGraphDestroy, CUgraph)(graph), "destroy");
}

void share() {
  CUipcMemHandle handle;
  check(CU(cuIpcGetMemHandle, CUipcMemHandle*, CUdeviceptr)(&handle, memory), "ipc");
  std::size_t free = 0;
  std::size_t total = 0;
  check(CU(cuMemGetInfo_v2, size_t*, size_t*)(&free, &total), "info");
  std::printf("total %zu\n", total);
  CUdeviceptr base = 0;
  std::size_t range = 0;
  check(CU(cuMemGetAddressRange_v2, CUdeviceptr*, size_t*, CUdeviceptr)(&base, &range, memory + 8),
        "range");
}

void pool() {
  CUmemoryPool pool = nullptr;
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  check(CU(cuMemPoolCreate, CUmemoryPool*, const CUmemPoolProps*)(&pool, &properties), "pool");
  tell("pool", pool);
  cuuint64_t keep = 1 << 20;
  check(CU(cuMemPoolSetAttribute, CUmemoryPool, CUmemPool_attribute, void*)(
            pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
        "threshold");
  check(CU(cuMemPoolTrimTo, CUmemoryPool, size_t)(pool, 12345), "trim");
  check(CU(cuMemPoolDestroy, CUmemoryPool)(pool), "destroy pool");
}

void virtual_memory() {
  constexpr std::size_t granule = 2 << 20;
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle chunk = 0;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  check(CU(cuMemAddressReserve, CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long)(
            &address, granule, 0, 0, 0),
        "reserve");
  tell("reserved", address);
  check(CU(cuMemCreate, CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
           unsigned long long)(&chunk, granule, &properties, 0),
        "create");
  check(CU(cuMemMap, CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)(
            address, granule, 0, chunk, 0),
        "map");
  check(CU(cuMemSetAccess, CUdeviceptr, size_t, const CUmemAccessDesc*, size_t)(address, granule,
                                                                                &access, 1),
        "access");
  check(CU(cuMemUnmap, CUdeviceptr, size_t)(address, granule), "unmap");
  check(CU(cuMemRelease, CUmemGenericAllocationHandle)(chunk), "release");
  check(CU(cuMemAddressFree, CUdeviceptr, size_t)(address, granule), "give addresses back");
}

void end() {
  check(CU(cuMemFree_v2, CUdeviceptr)(memory), "free");
  check(CU(cuMemFree_v2, CUdeviceptr)(other), "free");
  check(CU(cuEventDestroy_v2, CUevent)(event), "destroy event");
  check(CU(cuStreamDestroy_v2, CUstream)(stream), "destroy stream");
  check(CU(cuDevicePrimaryCtxRelease_v2, CUdevice)(0), "release");
}

}  // namespace

// The simulated driver's implementation of the kernel.
CUVMM_SIM_KERNEL(events_kernel) {
  (void)launch;
}

int main() {
  begin();
  copy_and_set();
  launch_work();
  order();
  capture();
  share();
  pool();
  virtual_memory();
  end();
  return 0;
}
