// SPDX-License-Identifier: Apache-2.0
// An inert stand-in for the preload library. A container's /etc/ld.so.preload names it, so every
// dynamically linked program there loads it: shells, apt, setuid programs. Until a program uses
// CUDA, the stub does nothing: it has no constructor, opens no file, starts no thread, and needs no
// library and no symbol version, so that any C library can load it. The first use of the driver
// loads libcuvmm_preload.so from the stub's own folder.
//
// A program reaches the driver in two ways. If it is linked to libcuda.so.1, or loads a library
// that is, it binds to the driver's names, which the stub exports. If it opens the driver itself,
// it looks up functions with dlsym, which the stub exports as well. The same holds for the
// functions of NVML that tell a device's memory.
#include <stddef.h>

#include "base/processor.h"
#include "stub/entry_code.h"

// Weak and unversioned, so that each is either present or null with any C library. Before glibc
// 2.34, a program that starts without libdl has no dlopen. It may load libdl later, with another
// library, and then runs natively.
#define MAYBE extern __attribute__((weak))
MAYBE void* dlopen(const char* file, int mode);
MAYBE void* dlvsym(void* library, const char* name, const char* version);
MAYBE void* __libc_dlopen_mode(const char* file, int mode);  // before glibc 2.34
MAYBE void* __libc_dlsym(void* library, const char* name);   // the same
MAYBE char* dlerror(void);
MAYBE char* secure_getenv(const char* name);
MAYBE unsigned long getauxval(unsigned long type);
MAYBE long write(int file, const void* data, size_t size);
MAYBE int* __errno_location(void);

enum { lazily = 1, now = 2, only_if_loaded = 4, at_secure = 23, standard_error = 2 };
enum { cuda_no_device = 100, cuda_not_found = 500, nvml_function_not_found = 13 };
#define DEFAULT_SCOPE ((void*)0)
#define NEXT_SCOPE ((void*)-1L)

typedef void* (*Dlsym)(void* library, const char* name);

#define HIDDEN __attribute__((visibility("hidden")))
#define EXPORTED __attribute__((visibility("default")))

// Called and read by the assembler code (entry_code.h). Threads that race for the first use store
// the same value.
HIDDEN Dlsym cuvmm_stub_next_dlsym;
HIDDEN void* cuvmm_stub_decide_dlsym(void** library, const char* name);
HIDDEN void* cuvmm_stub_resolve(const char* name, void** slot);

// The names of all doors, one after another, lie between these two.
extern const char cuvmm_stub_names[] HIDDEN;
extern const char cuvmm_stub_names_end[] HIDDEN;

// The stub itself, in memory (the linker defines both).
extern const char __ehdr_start[] HIDDEN;
extern const char _end[] HIDDEN;

// clang-format off
asm(R"(
.pushsection .rodata.cuvmm_names, "a", %progbits
.globl cuvmm_stub_names
.hidden cuvmm_stub_names
cuvmm_stub_names:
.popsection
)");

asm(".globl cuvmm_stub_dlsym_old\n"
    ".type cuvmm_stub_dlsym_old, %function\n"
    ".set cuvmm_stub_dlsym_old, cuvmm_stub_dlsym\n"
    ".globl cuvmm_stub_dlsym_new\n"
    ".type cuvmm_stub_dlsym_new, %function\n"
    ".set cuvmm_stub_dlsym_new, cuvmm_stub_dlsym\n"
    ".symver cuvmm_stub_dlsym_old, dlsym@" CUVMM_FIRST_GLIBC "\n"
    ".symver cuvmm_stub_dlsym_new, dlsym@GLIBC_2.34\n");

#define DOOR(symbol) asm("cuvmm_door " #symbol);
#define DOORS_Legacy(symbol) DOOR(symbol)
#define DOORS_LegacyAndPtds(symbol) DOOR(symbol) DOOR(symbol##_ptds)
#define DOORS_LegacyAndPtsz(symbol) DOOR(symbol) DOOR(symbol##_ptsz)
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) DOORS_##flavours(symbol)
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
DOOR(cuvmm_engine_v1)
DOOR(nvmlDeviceGetMemoryInfo)
DOOR(nvmlDeviceGetMemoryInfo_v2)
#define DOORS_OF_LIST(name) DOOR(name) DOOR(name##_v2) DOOR(name##_v3)
DOORS_OF_LIST(nvmlDeviceGetComputeRunningProcesses)
DOORS_OF_LIST(nvmlDeviceGetGraphicsRunningProcesses)
DOORS_OF_LIST(nvmlDeviceGetMPSComputeRunningProcesses)

asm(R"(
.pushsection .rodata.cuvmm_names, "a", %progbits
.globl cuvmm_stub_names_end
.hidden cuvmm_stub_names_end
cuvmm_stub_names_end:
.popsection
)");
// clang-format on

// A program with AddressSanitizer's shared runtime aborts if another library is loaded before the
// runtime, unless this check is disabled. This function is the runtime's own interface for that; a
// program's own definition takes precedence.
EXPORTED const char* __asan_default_options(void);
const char* __asan_default_options(void) {
  return "verify_asan_link_order=0";
}

static int is_same(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

static int is_off(const char* mode) {
  const char* const off = "off";
  int i = 0;
  while (off[i] != '\0' && (mode[i] | 0x20) == off[i]) ++i;
  return off[i] == '\0' && mode[i] == '\0';
}

static int is_named_like_the_drivers(const char* name) {
  return name != NULL && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

static int has_door(const char* name) {
  for (const char* one = cuvmm_stub_names; one < cuvmm_stub_names_end; ++one) {
    if (is_same(one, name)) return 1;
    while (*one != '\0') ++one;
  }
  return 0;
}

static void* no_symbol(void* library, const char* name) {
  (void)library;
  (void)name;
  return NULL;
}

static Dlsym next_dlsym(void) {
  Dlsym next = __atomic_load_n(&cuvmm_stub_next_dlsym, __ATOMIC_ACQUIRE);
  if (next != NULL) return next;
  if (dlvsym != NULL) next = (Dlsym)dlvsym(NEXT_SCOPE, "dlsym", "GLIBC_2.34");
  if (next == NULL && dlvsym != NULL) next = (Dlsym)dlvsym(NEXT_SCOPE, "dlsym", CUVMM_FIRST_GLIBC);
  if (next == NULL && __libc_dlopen_mode != NULL && __libc_dlsym != NULL) {
    void* const libdl = __libc_dlopen_mode("libdl.so.2", lazily | only_if_loaded);
    if (libdl != NULL) next = (Dlsym)__libc_dlsym(libdl, "dlsym");
  }
  if (next == NULL) next = no_symbol;
  __atomic_store_n(&cuvmm_stub_next_dlsym, next, __ATOMIC_RELEASE);
  return next;
}

// glibc's own, which finds what a file really has: next_dlsym() may be another preload library's,
// which answers with functions of its own.
static Dlsym own_dlsym(void) {
  static const char* const files[] = {"libc.so.6", "libdl.so.2"};
  for (int i = 0; dlopen != NULL && dlvsym != NULL && i < 2; ++i) {
    void* const file = dlopen(files[i], lazily | only_if_loaded);
    if (file == NULL) continue;
    Dlsym found = (Dlsym)dlvsym(file, "dlsym", "GLIBC_2.34");
    if (found == NULL) found = (Dlsym)dlvsym(file, "dlsym", CUVMM_FIRST_GLIBC);
    if (found != NULL) return found;
  }
  return next_dlsym();
}

static int is_named_like_nvmls(const char* name) {
  return name != NULL && name[0] == 'n' && name[1] == 'v' && name[2] == 'm' && name[3] == 'l';
}

// The library that a function belongs to by its name. Null if the stub does not serve it.
static const char* library_of(const char* name) {
  if (is_named_like_the_drivers(name)) return "libcuda.so.1";
  return is_named_like_nvmls(name) && has_door(name) ? "libnvidia-ml.so.1" : NULL;
}

static void* if_loaded(const char* library) {
  return dlopen != NULL && library != NULL ? dlopen(library, lazily | only_if_loaded) : NULL;
}

static int is_of_the_stub(const void* address) {
  return (const char*)address >= __ehdr_start && (const char*)address < _end;
}

static void say(const char* text) {
  size_t size = 0;
  while (text[size] != '\0') ++size;
  if (write != NULL && write(standard_error, text, size) < 0) return;
}

// Setuid programs run natively, so that nothing under their caller's control is loaded into them.
static int is_wanted(void) {
  if (dlopen == NULL || getauxval == NULL || getauxval(at_secure) != 0) return 0;
  const char* const mode = secure_getenv != NULL ? secure_getenv("VMM_MODE") : NULL;
  return mode == NULL || !is_off(mode);
}

// Returns null if the program runs natively. $ORIGIN is the stub's own folder. If several threads
// call this at once, the loader makes them wait for the first and gives all of them the same
// library.
static void* engine(void) {
  enum { unknown, loaded, absent };
  static int state;
  static void* library;
  const int known = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
  if (known != unknown) return known == loaded ? library : NULL;
  if (!is_wanted()) {
    __atomic_store_n(&state, absent, __ATOMIC_RELEASE);
    return NULL;
  }
  void* const found = dlopen("$ORIGIN/libcuvmm_preload.so", now);
  if (found != NULL) {
    __atomic_store_n(&library, found, __ATOMIC_RELAXED);
    __atomic_store_n(&state, loaded, __ATOMIC_RELEASE);
    return found;
  }
  if (__atomic_exchange_n(&state, absent, __ATOMIC_ACQ_REL) == unknown) {
    const char* const why = dlerror != NULL ? dlerror() : NULL;
    say("cuvmm: this program's GPU memory is not served and not limited: ");
    say(why != NULL ? why : "the engine cannot be loaded");
    say("\n");
  }
  return NULL;
}

static int no_device(void) {
  return cuda_no_device;
}

static int not_found(void) {
  return cuda_not_found;
}

static int nvml_not_found(void) {
  return nvml_function_not_found;
}

static void* no_engine(void) {
  return NULL;
}

// What the program would find without the stub, in the libraries that it is linked to or has opened
// for all. It need not be the driver's: programs are linked to mocks, or to clients of a driver on
// another machine.
static void* next_definition(void* library, const char* name) {
  (void)library;
  return own_dlsym()(NEXT_SCOPE, name);
}

// Returns the engine's function, or natively that of the driver or of NVML. Never null.
void* cuvmm_stub_resolve(const char* name, void** slot) {
  const int kept_errno = __errno_location != NULL ? *__errno_location() : 0;
  const Dlsym look_up = own_dlsym();
  const char* const file = library_of(name);
  void* const library = if_loaded(file);
  void* const next = file != NULL ? next_definition(NULL, name) : NULL;
  const int is_anothers = next != NULL && library == NULL;
  void* const served = is_anothers ? NULL : engine();
  void* found = served != NULL ? look_up(served, name) : NULL;
  if (found == NULL && file == NULL) found = (void*)no_engine;
  if (found == NULL) found = next;
  if (found == NULL && library != NULL) found = look_up(library, name);
  if (found != NULL) __atomic_store_n(slot, found, __ATOMIC_RELEASE);
  if (found == NULL && is_named_like_nvmls(name)) found = (void*)nvml_not_found;
  if (found == NULL) found = library != NULL ? (void*)not_found : (void*)no_device;
  if (__errno_location != NULL) *__errno_location() = kept_errno;
  return found;
}

// Returns the dlsym that must answer. May change the caller's `library`.
void* cuvmm_stub_decide_dlsym(void** library, const char* name) {
  const Dlsym next = next_dlsym();
  const char* const file = library_of(name);
  if (file == NULL || dlopen == NULL) return (void*)next;
  static Dlsym of_engine;
  Dlsym served = __atomic_load_n(&of_engine, __ATOMIC_ACQUIRE);
  if (served != NULL) return (void*)served;
  Dlsym answers = next;
  const int kept_errno = __errno_location != NULL ? *__errno_location() : 0;
  void* const loaded = if_loaded(file);
  const int is_scope = *library == DEFAULT_SCOPE || *library == NEXT_SCOPE;
  // A scope has the stub's own doors. The engine must know of any other function of the driver.
  void* const searched = is_scope ? (has_door(name) ? NULL : loaded) : *library;
  void* const found = searched != NULL ? next(searched, name) : NULL;
  if (loaded == NULL) {
    // A program that only checks for a driver must not mistake our doors for one.
    const int is_ours = *library == DEFAULT_SCOPE ? is_of_the_stub(next(DEFAULT_SCOPE, name))
                                                  : is_of_the_stub(found);
    if (*library == NEXT_SCOPE ? has_door(name) : is_ours) {
      if (next_definition(NULL, name) == NULL) {
        *library = dlopen("libc.so.6", lazily | only_if_loaded);
      } else if (*library != NEXT_SCOPE) {
        // A caller that comes after the stub has another next definition, or none.
        answers = next_definition;
      }
    }
  } else if (found != NULL && found == next(loaded, name)) {
    // The comparison excludes another library's function of such a name.
    void* const preload = engine();
    if (preload != NULL) served = (Dlsym)dlvsym(preload, "dlsym", "GLIBC_2.34");
    if (served != NULL) __atomic_store_n(&of_engine, served, __ATOMIC_RELEASE);
  }
  if (__errno_location != NULL) *__errno_location() = kept_errno;
  return served != NULL ? (void*)served : (void*)answers;
}
