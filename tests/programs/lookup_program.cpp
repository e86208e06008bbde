// SPDX-License-Identifier: Apache-2.0
// Looks symbols up as programs and their libraries do, and prints what it finds.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

extern "C" void say_who_is_there();

namespace {

const char* found_or_not(void* address) {
  return address != nullptr ? "found" : "not found";
}

const char* library_of(void* address) {
  Dl_info where{};
  if (address == nullptr || dladdr(address, &where) == 0) return "nowhere";
  const char* slash = std::strrchr(where.dli_fname, '/');
  return slash != nullptr ? slash + 1 : where.dli_fname;
}

void look_up_others() {
  std::printf("malloc by RTLD_DEFAULT   %s\n", library_of(dlsym(RTLD_DEFAULT, "malloc")));
  std::printf("malloc by RTLD_NEXT      %s\n", library_of(dlsym(RTLD_NEXT, "malloc")));
  void* math = dlopen("libm.so.6", RTLD_NOW);
  std::printf("cos by handle            %s\n", library_of(dlsym(math, "cos")));
  std::printf("cudaMalloc by default    %s\n", found_or_not(dlsym(RTLD_DEFAULT, "cudaMalloc")));
}

// The chain is linked to this program, so that each library's RTLD_NEXT means the one behind it.
void follow_the_chain() {
  say_who_is_there();
  using Function = void (*)();
  reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "say_who_is_there"))();
}

void look_for_a_driver() {
  dlerror();
  std::printf("cuInit by default        %s\n", found_or_not(dlsym(RTLD_DEFAULT, "cuInit")));
  std::printf("error then               %s\n", dlerror() != nullptr ? "some" : "none");
  std::printf("cuMemAlloc_v2 by next    %s\n", found_or_not(dlsym(RTLD_NEXT, "cuMemAlloc_v2")));
  void* const program = dlopen(nullptr, RTLD_NOW);
  std::printf("cuInit in the program    %s\n", found_or_not(dlsym(program, "cuInit")));
  std::printf("error then               %s\n", dlerror() != nullptr ? "some" : "none");
  std::printf("NVML in the program      %s\n",
              found_or_not(dlsym(program, "nvmlDeviceGetMemoryInfo")));
}

void look_at_errors() {
  dlerror();
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  std::printf("error after opening      %s\n", dlerror() == nullptr ? "none" : "some");
  errno = 77;
  (void)dlsym(driver, "cuInit");
  std::printf("errno after finding      %d\n", errno);
  std::printf("error after finding      %s\n", dlerror() == nullptr ? "none" : "some");
  (void)dlsym(driver, "cuNoSuchFunction");
  const char* error = dlerror();
  std::printf(
      "error after not finding  %s\n",
      error != nullptr && std::strstr(error, "cuNoSuchFunction") != nullptr ? "its own" : "wrong");
  std::printf("error asked again        %s\n", dlerror() == nullptr ? "none" : "some");
}

void look_up_from_many_threads() {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 64; ++i) {
    threads.emplace_back([&] {
      void* driver = dlopen("libcuda.so.1", RTLD_NOW);
      using Function = int (*)(int*);
      const auto version = reinterpret_cast<Function>(dlsym(driver, "cuDriverGetVersion"));
      int number = 0;
      if (version == nullptr || version(&number) != 0 || number < 11000) ++wrong;
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("64 threads               %d wrong\n", wrong.load());
}

// A driver may lack functions that cuvmm has a door for.
int look_at_the_driver_of_all() {
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr) return 1;
  for (const char* name : {"cuInit", "cuGetProcAddress_v2", "cuMemCreate"}) {
    std::printf("%-24s %s\n", name, found_or_not(dlsym(RTLD_DEFAULT, name)));
  }
  return 0;
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) return look_at_the_driver_of_all();
  look_up_others();
  follow_the_chain();
  look_for_a_driver();
  look_at_errors();
  look_up_from_many_threads();
  return 0;
}
