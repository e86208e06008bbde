// SPDX-License-Identifier: Apache-2.0
// Ends and forks in the ways that programs do. The first argument selects which.
#include <fcntl.h>
#include <link.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "routes.hpp"

namespace {

namespace fs = std::filesystem;

Calls calls;
CUdeviceptr kept = 0;

void begin() {
  calls = calls_by_dlsym();
  CUcontext context = nullptr;
  if (calls.cuInit_(0) != CUDA_SUCCESS) std::exit(10);
  if (calls.cuDevicePrimaryCtxRetain_(&context, 0) != CUDA_SUCCESS) std::exit(11);
  calls.cuCtxSetCurrent_(context);
  if (calls.cuMemAlloc_(&kept, 4 << 20) != CUDA_SUCCESS) std::exit(12);
}

void free_at_exit() {
  if (calls.cuMemFree_(kept) != CUDA_SUCCESS) _exit(13);
  std::printf("freed at exit\n");
}

using LaunchHostFunction = CUresult (*)(CUstream, CUhostFn, void*);
std::atomic<int> done{0};

void do_one(void*) {
  usleep(1000);
  ++done;
}

void count_at_exit() {
  if (calls.cuStreamSynchronize_(CU_STREAM_LEGACY) != CUDA_SUCCESS) _exit(15);
  std::printf("%d done at exit\n", done.load());
}

// Work that runs until the process frees its memory at exit.
std::atomic<bool> frees_at_exit{false};

void wait_for_free(void*) {
  while (!frees_at_exit.load()) usleep(1000);
}

void end_work_and_free_at_exit() {
  frees_at_exit.store(true);
  free_at_exit();
}

void begin_with_work() {
  std::atexit(&end_work_and_free_at_exit);
  begin();
  const auto launch =
      reinterpret_cast<LaunchHostFunction>(dlsym(driver_library(), "cuLaunchHostFunc"));
  require(launch, "cuLaunchHostFunc");
  if (launch(CU_STREAM_LEGACY, &wait_for_free, nullptr) != CUDA_SUCCESS) std::exit(16);
}

// The handler interrupts a call of the driver, which never goes on.
int exit_in_a_handler() {
  begin_with_work();
  std::signal(SIGALRM, [](int) { std::exit(0); });
  const itimerval soon{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 100'000}};
  setitimer(ITIMER_REAL, &soon, nullptr);
  calls.cuStreamSynchronize_(CU_STREAM_LEGACY);
  return 17;
}

int end_with_work_when_told() {
  begin_with_work();
  std::ofstream{"begun"} << "it has";
  std::string line;
  std::getline(std::cin, line);
  return 0;
}

void free_when_told() {
  std::string line;
  std::getline(std::cin, line);
  free_at_exit();
}

// A second line lets it free its memory and end.
int use_up_files_when_told() {
  begin();
  std::ofstream{"begun"} << "it has";
  std::string line;
  std::getline(std::cin, line);
  while (open("/dev/null", O_RDONLY) >= 0) {
  }
  free_when_told();
  return 0;
}

// Most of it is still queued when the process ends.
void queue_much() {
  const auto launch =
      reinterpret_cast<LaunchHostFunction>(dlsym(driver_library(), "cuLaunchHostFunc"));
  require(launch, "cuLaunchHostFunc");
  for (int i = 0; i < 600; ++i) {
    if (launch(CU_STREAM_LEGACY, &do_one, nullptr) != CUDA_SUCCESS) std::exit(16);
  }
}

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A child of a process with a started driver gets an error, and ends normally.
int fork_after_start() {
  begin();
  const pid_t child = fork();
  if (child == 0) {
    CUdeviceptr address = 0;
    const CUresult answer = calls.cuMemAlloc_(&address, 1 << 20);
    _exit(answer == CUDA_ERROR_NOT_INITIALIZED ? 0 : 20);
  }
  const int status = wait_for(child);
  return calls.cuMemFree_(kept) == CUDA_SUCCESS ? status : 21;
}

// As daemons do. The files opened then reuse cuvmm's descriptor numbers, and the child inherits
// them.
int close_all_and_fork() {
  begin();
  for (int number = 3; number < 1024; ++number) close(number);
  std::vector<int> files;
  for (int i = 0; i < 300; ++i) files.push_back(open("/dev/null", O_RDONLY));
  const pid_t child = fork();
  if (child == 0) {
    for (const int file : files) {
      if (fcntl(file, F_GETFD) < 0) _exit(24);
    }
    _exit(0);
  }
  return wait_for(child);
}

int fork_before_start() {
  const pid_t child = fork();
  begin();
  if (child == 0) _exit(0);
  return wait_for(child);
}

int fork_and_execute(char* self) {
  begin();
  const pid_t child = fork();
  if (child == 0) {
    execl(self, self, "plain", nullptr);
    _exit(22);
  }
  return wait_for(child);
}

int vfork_and_execute(char* self) {
  begin();
  const pid_t child = vfork();
  if (child == 0) {
    execl(self, self, "plain", nullptr);
    _exit(22);
  }
  return wait_for(child);
}

int become_daemon() {
  begin();
  if (daemon(1, 1) != 0) return 23;
  begin();  // not reached natively either: the driver refuses a forked child
  return 0;
}

// Reports the state of a process that does not use a device.
int look_at_itself() {
  const auto tasks = std::distance(fs::directory_iterator{"/proc/self/task"}, {});
  std::ifstream maps{"/proc/self/maps"};
  bool has_driver = false;
  for (std::string line; std::getline(maps, line);) {
    has_driver = has_driver || line.find("libcuda.so") != std::string::npos;
  }
  const auto files = std::distance(fs::directory_iterator{"/proc/self/fd"}, {});
  std::printf("%td threads, %td files, %s\n", tasks, files, has_driver ? "a driver" : "no driver");
  return 0;
}

// For at most 20 s.
void wait_until(const std::function<bool()>& holds) {
  for (int tries = 0; tries < 20'000 && !holds(); ++tries) usleep(1000);
}

// A thread that has been joined may still be listed for a moment.
int join_a_thread_and_look() {
  pid_t number = 0;
  std::thread{[&] { number = gettid(); }}.join();
  const fs::path listed = "/proc/self/task/" + std::to_string(number);
  wait_until([&] { return !fs::exists(listed); });
  return look_at_itself();
}

// The kernel has released its memory and files by then, as /proc/self shows.
bool first_thread_is_a_zombie() {
  std::ifstream file{"/proc/self/stat"};
  std::string state;
  std::getline(file, state);
  const auto name_ends = state.rfind(") ");
  return name_ends != std::string::npos && state[name_ends + 2] == 'Z';
}

std::string folder_of_self() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
}

// A library allocates memory and is closed; the program uses and frees that memory.
int close_a_library() {
  begin();
  const std::string name = folder_of_self() + "/libcuvmm_plugin.so";
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 30;
  using Allocate = unsigned long long (*)(unsigned long long);
  const auto allocate = reinterpret_cast<Allocate>(dlsym(library, "plugin_allocate"));
  const CUdeviceptr address = allocate(1 << 20);
  if (address == 0 || dlclose(library) != 0) return 31;
  if (calls.cuMemsetD32_(address, 5, 1024) != CUDA_SUCCESS) return 32;
  if (calls.cuMemFree_(address) != CUDA_SUCCESS) return 33;
  return calls.cuMemFree_(kept) == CUDA_SUCCESS ? 0 : 34;
}

// Checks through that file alone whether there is a driver; later a lookup that names no file finds
// the driver. By then the memory that the loader freed has been overwritten.
int look_close_and_begin(const std::string& file) {
  void* library = dlopen(file.c_str(), RTLD_NOW);
  const bool is_there = library != nullptr && dlsym(library, "cuInit") != nullptr;
  if (!is_there || dlclose(library) != 0) return 51;
  if (file.starts_with('/')) fs::remove_all(fs::path{file}.parent_path());
  std::vector<std::string> written_over;
  for (std::size_t size = 8; size < 512; ++size) written_over.emplace_back(size, 'x');
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr) return 52;
  const auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(RTLD_DEFAULT, "cuInit"));
  if (init == nullptr) return 53;
  std::printf("cuInit: %d\n", init(0));
  return 0;
}

// Closes the driver as often as it was opened, and begins again.
int begin_close_and_begin() {
  begin();
  void* const library = driver_library();
  if (dlclose(library) != 0 || dlclose(library) != 0) return 56;
  begin();
  return calls.cuMemFree_(kept) == CUDA_SUCCESS ? 0 : 57;
}

// A separate copy of the driver's file, in a new folder.
std::string copy_of_driver() {
  void* library = driver_library();
  link_map* loaded = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &loaded) != 0) std::exit(54);
  std::string folder = (fs::temp_directory_path() / "cuvmm_driver_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) std::exit(55);
  const std::string copy = folder + "/libcuda.so.1";
  fs::copy_file(loaded->l_name, copy);
  dlclose(library);
  return copy;
}

// Threads that are inside driver calls when the process ends or forks.
void begin_in_many_threads() {
  begin();
  for (int i = 0; i < 8; ++i) {
    std::thread{[] {
      CUcontext context = nullptr;
      calls.cuDevicePrimaryCtxRetain_(&context, 0);
      calls.cuCtxSetCurrent_(context);
      for (;;) {
        CUdeviceptr address = 0;
        if (calls.cuMemAlloc_(&address, 1 << 16) == CUDA_SUCCESS) calls.cuMemFree_(address);
      }
    }}.detach();
  }
  usleep(20'000);
}

int fork_while_busy(char* self) {
  begin_in_many_threads();
  for (int i = 0; i < 5; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      execl(self, self, "plain", nullptr);
      _exit(22);
    }
    if (const int status = wait_for(child); status != 0) _exit(status);
  }
  _exit(0);
}

// Waits until the parent closes its end, then frees.
void be_a_child(int end_of_parent) {
  begin();
  char none = 0;
  while (read(end_of_parent, &none, 1) > 0) continue;
  _exit(calls.cuMemFree_(kept) == CUDA_SUCCESS ? 0 : 17);
}

// Forks while its threads are inside calls, and before it starts the driver: its children may use
// it. Ends once it is told to.
int fork_while_calling() {
  calls = calls_by_dlsym();
  calls.cuMemsetD32_(0, 1, 1);  // refused, since nobody has called cuInit
  std::atomic<int> callers{0};
  std::atomic<bool> stops{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      ++callers;
      while (!stops) calls.cuMemsetD32_(0, 1, 1);
    });
  }
  while (callers < 4) usleep(100);
  int ends[2];
  if (pipe(ends) != 0) return 18;
  std::vector<pid_t> children;
  for (int i = 0; i < 5; ++i) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    close(ends[1]);
    be_a_child(ends[0]);
  }
  stops = true;
  for (std::thread& thread : threads) thread.join();
  std::string line;
  std::getline(std::cin, line);
  close(ends[1]);
  int status = 0;
  for (const pid_t child : children) status = std::max(status, wait_for(child));
  return status;
}

// The thread is cancelled as soon as a call lets it be.
void* start_the_driver_when_cancelled(void*) {
  pthread_cancel(pthread_self());
  calls.cuInit_(0);
  pthread_testcancel();
  return nullptr;
}

// Prints what the driver says to a request for 128 MiB.
int start_in_a_cancelled_thread() {
  calls = calls_by_dlsym();
  pthread_t thread{};
  pthread_create(&thread, nullptr, &start_the_driver_when_cancelled, nullptr);
  pthread_join(thread, nullptr);
  begin();
  CUdeviceptr address = 0;
  std::printf("%d\n", calls.cuMemAlloc_(&address, 128 << 20));
  return 0;
}

// Ends with its last thread, which is not the one that main() ran on.
int query_and_leave_a_thread() {
  calls = calls_by_dlsym();
  if (calls.cuInit_(0) != CUDA_SUCCESS) return 10;
  std::thread{[] {
    wait_until(&first_thread_is_a_zombie);
    look_at_itself();
    std::fflush(stdout);
  }}.detach();
  pthread_exit(nullptr);
}

// A child of a busy process that calls the driver itself.
int fork_and_call_while_busy() {
  begin_in_many_threads();
  const pid_t child = fork();
  if (child == 0) {
    CUdeviceptr address = 0;
    calls.cuMemAlloc_(&address, 1 << 20);
    _exit(0);
  }
  _exit(wait_for(child));
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "plain";
  if (what == "plain") {
    begin();
    return calls.cuMemFree_(kept) == CUDA_SUCCESS ? 0 : 14;
  }
  if (what == "no-cuda") return look_at_itself();
  if (what == "keep") {
    begin();
    return 0;
  }
  if (what == "atexit") {
    std::atexit(&free_at_exit);
    begin();
    return 0;
  }
  // There is still work to do after the loader's own exit handlers have run.
  if (what == "end-when-told") {
    std::atexit(&free_at_exit);
    begin();
    std::string line;
    std::getline(std::cin, line);
    return 0;
  }
  if (what == "exit-in-handler") return exit_in_a_handler();
  if (what == "end-with-work-when-told") return end_with_work_when_told();
  if (what == "use-up-files-when-told") return use_up_files_when_told();
  // The second line lets it go on with its exit.
  if (what == "end-when-told-twice") {
    std::atexit(&free_when_told);
    begin();
    std::string line;
    std::getline(std::cin, line);
    return 0;
  }
  if (what == "exit-queued") {
    std::atexit(&count_at_exit);
    begin();
    queue_much();
    return 0;
  }
  if (what == "exit-in-thread") {
    begin();
    std::thread{[] { std::exit(0); }}.join();
  }
  if (what == "fork") return fork_after_start();
  if (what == "close-all-fork") return close_all_and_fork();
  if (what == "fork-first") return fork_before_start();
  if (what == "fork-exec") return fork_and_execute(words[0]);
  if (what == "vfork-exec") return vfork_and_execute(words[0]);
  if (what == "daemon") return become_daemon();
  if (what == "dlclose") return close_a_library();
  if (what == "begin-and-dlclose") return begin_close_and_begin();
  if (what == "look-and-dlclose") return look_close_and_begin("libcuda.so.1");
  if (what == "look-and-remove") return look_close_and_begin(copy_of_driver());
  if (what == "exit-busy") {
    begin_in_many_threads();
    std::exit(0);
  }
  if (what == "fork-busy") return fork_while_busy(words[0]);
  if (what == "fork-while-calling") return fork_while_calling();
  if (what == "fork-call-busy") return fork_and_call_while_busy();
  if (what == "no-cuda-thread") return join_a_thread_and_look();
  if (what == "start-cancelled") return start_in_a_cancelled_thread();
  if (what == "query-only") return query_and_leave_a_thread();
  if (what == "crash") {
    begin();
    std::abort();
  }
  return 2;
}
