// SPDX-License-Identifier: Apache-2.0
// A program that opens the driver. EXPECT_TOTAL is the device memory that it must see.
//   opens WAY   handle: as the CUDA runtime does; scope: through the global scope; library FILE:
//               through a library that is linked to the driver; threads: many threads open it
//               first,
//               at the same time; absent: without a driver
#define _GNU_SOURCE
#include <cuda.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "seen.h"

typedef CUresult (*Init)(unsigned);
typedef CUresult (*Total)(size_t*, CUdevice);
typedef CUresult (*ProcAddress)(const char*, void**, int, cuuint64_t,
                                CUdriverProcAddressQueryResult*);

static int threads_of_this_process(void) {
  int count = 0;
  DIR* all = opendir("/proc/self/task");
  while (readdir(all) != NULL) ++count;
  closedir(all);
  return count - 2;
}

static size_t expected_total(void) {
  return strtoull(getenv("EXPECT_TOTAL"), NULL, 10);
}

static void* opened_driver(int how) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | how);
  must(driver != NULL, "the driver opens");
  return driver;
}

// As the CUDA runtime does: everything through cuGetProcAddress.
static void by_handle(void) {
  void* const driver = opened_driver(RTLD_LOCAL);
  must(!engine_is_mapped(), "opening the driver loads no engine yet");
  errno = 77;
  const ProcAddress look_up = (ProcAddress)dlsym(driver, "cuGetProcAddress_v2");
  must(look_up != NULL && errno == 77, "cuGetProcAddress is found, and errno as it was");
  must(engine_is_mapped() == engine_is_expected(), "the first lookup loads the engine if it may");
  void* found = NULL;
  must(look_up("cuInit", &found, 12000, 0, NULL) == CUDA_SUCCESS, "cuInit is found");
  must(((Init)found)(0) == CUDA_SUCCESS, "cuInit succeeds");
  size_t total = 0;
  must(look_up("cuDeviceTotalMem", &found, 12000, 0, NULL) == CUDA_SUCCESS, "the total is found");
  must(((Total)found)(&total, 0) == CUDA_SUCCESS, "the total is answered");
  must(total == expected_total(), "it sees the memory it may have");
  must(dlsym(driver, "cuNoSuchFunction") == NULL && dlerror() != NULL,
       "what is not there is not found");
  must(dlerror() == NULL, "an error is told once");
}

static void by_scope(void) {
  must(dlsym(RTLD_DEFAULT, "cuInit") == NULL, "no driver, no function of it");
  must(dlerror() != NULL, "and it says so");
  must(!engine_is_mapped(), "asking loads no engine");
  opened_driver(RTLD_GLOBAL);
  const Init init = (Init)dlsym(RTLD_DEFAULT, "cuInit");
  must(init != NULL && init(0) == CUDA_SUCCESS, "cuInit is found and succeeds");
  must(engine_is_mapped() == engine_is_expected(), "the first call loads the engine if it may");
  const Total total_of = (Total)dlsym(RTLD_DEFAULT, "cuDeviceTotalMem_v2");
  size_t total = 0;
  must(total_of(&total, 0) == CUDA_SUCCESS && total == expected_total(),
       "it sees the memory it may have");
}

static void by_library(const char* file) {
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  must(library != NULL, "the library opens");
  must(!engine_is_mapped(), "opening it loads no engine yet");
  size_t (*total)(void) = (size_t(*)(void))dlsym(library, "total_by_direct_calls");
  int (*copies)(void) = (int (*)(void))dlsym(library, "copies_by_direct_calls");
  must(total() == expected_total(), "it sees the memory it may have");
  must(engine_is_mapped() == engine_is_expected(), "the first call loads the engine if it may");
  must(copies(), "what it copies there and back is the same");
}

static pthread_barrier_t together;
static void* driver_of_threads;

static void* come_first(void* unused) {
  (void)unused;
  pthread_barrier_wait(&together);
  const Init init = (Init)dlsym(driver_of_threads, "cuInit");
  const Total total_of = (Total)dlsym(driver_of_threads, "cuDeviceTotalMem_v2");
  size_t total = 0;
  must(init(0) == CUDA_SUCCESS && total_of(&total, 0) == CUDA_SUCCESS, "every thread is answered");
  must(total == expected_total(), "every thread sees the memory it may have");
  return NULL;
}

static void by_threads(void) {
  enum { count = 8 };
  pthread_t threads[count];
  driver_of_threads = opened_driver(RTLD_LOCAL);
  pthread_barrier_init(&together, NULL, count);
  for (int i = 0; i < count; ++i) pthread_create(&threads[i], NULL, come_first, NULL);
  for (int i = 0; i < count; ++i) pthread_join(threads[i], NULL);
}

// A child uses the driver although its parent does not.
static void by_child(void) {
  const pid_t child = fork();
  if (child == 0) {
    by_handle();
    _exit(0);
  }
  int status = 0;
  must(waitpid(child, &status, 0) == child && status == 0, "a forked child is served");
  must(!engine_is_mapped(), "its parent has no engine");
}

static void without_driver(void) {
  must(dlopen("libcuda.so.1", RTLD_NOW) == NULL, "there is no driver here");
  must(dlsym(RTLD_DEFAULT, "cuInit") == NULL, "and no function of it");
  must(dlsym(RTLD_NEXT, "cuInit") == NULL, "nor behind this program");
  void* const program = dlopen(NULL, RTLD_NOW);
  must(dlsym(program, "cuInit") == NULL, "nor in this program and its libraries");
  must(dlsym(program, "nvmlDeviceGetMemoryInfo") == NULL, "nor a function of NVML");
  must(dlsym(program, "strlen") != NULL, "which have the C library's");
  must(dlsym(RTLD_DEFAULT, "cuvmm_no_such") == NULL, "nor others of ours");
  must(dlsym(RTLD_DEFAULT, "strlen") != NULL && dlsym(RTLD_NEXT, "dlsym") != NULL,
       "the C library's are found");
  must(!engine_is_mapped(), "no engine is loaded");
}

int main(int count, char** words) {
  const char* const way = count > 1 ? words[1] : "";
  must(!engine_is_mapped(), "the engine is not loaded at the start");
  must(threads_of_this_process() == 1, "one thread at the start");
  if (strcmp(way, "handle") == 0)
    by_handle();
  else if (strcmp(way, "scope") == 0)
    by_scope();
  else if (strcmp(way, "library") == 0)
    by_library(words[2]);
  else if (strcmp(way, "threads") == 0)
    by_threads();
  else if (strcmp(way, "child") == 0)
    by_child();
  else if (strcmp(way, "absent") == 0)
    without_driver();
  else
    return 2;
  return 0;
}
