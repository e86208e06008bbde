// SPDX-License-Identifier: Apache-2.0
#include "trace/stacks/python_frames.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>

namespace cuvmm::stacks {
namespace {

// Objects of the interpreter. None of their fields is ever read here.
using Object = void*;

constexpr std::size_t longest_name = 1024;

// All but the first two are part of Python's documented API. The first is documented from 3.13 on;
// earlier versions, whose exports no longer change, export it with an underscore.
struct Interpreter {
  Object (*PyThreadState_GetUnchecked)();
  Object (*PyGILState_GetThisThreadState)();
  int (*Py_IsInitialized)();
  Object (*PyErr_Occurred)();
  void (*PyErr_Clear)();
  Object (*PyEval_GetFrame)();
  Object (*PyFrame_GetBack)(Object);
  Object (*PyFrame_GetCode)(Object);
  int (*PyFrame_GetLineNumber)(Object);
  Object (*PyObject_GetAttrString)(Object, const char*);
  const char* (*PyUnicode_AsUTF8)(Object);
  int (*Py_AddPendingCall)(int (*)(void*), void*);  // which needs no lock
  void (*Py_IncRef)(Object);
  void (*Py_DecRef)(Object);
  // From 3.10 on. Before 3.11, walking the frames allocates nothing.
  int (*PyGC_Disable)();
  int (*PyGC_Enable)();
};

template <class Function>
bool find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

bool find_all(Interpreter& python) {
  find(python.PyGC_Disable, "PyGC_Disable");
  find(python.PyGC_Enable, "PyGC_Enable");
#define CUVMM_FIND(name) find(python.name, #name)
  return CUVMM_FIND(Py_IsInitialized) &&  // first: the usual answer without an interpreter is no
         (CUVMM_FIND(PyThreadState_GetUnchecked) ||
          find(python.PyThreadState_GetUnchecked, "_PyThreadState_UncheckedGet")) &&
         CUVMM_FIND(PyGILState_GetThisThreadState) && CUVMM_FIND(PyErr_Occurred) &&
         CUVMM_FIND(PyErr_Clear) && CUVMM_FIND(PyEval_GetFrame) && CUVMM_FIND(PyFrame_GetBack) &&
         CUVMM_FIND(PyFrame_GetCode) && CUVMM_FIND(PyFrame_GetLineNumber) &&
         CUVMM_FIND(PyObject_GetAttrString) && CUVMM_FIND(PyUnicode_AsUTF8) &&
         CUVMM_FIND(Py_AddPendingCall) && CUVMM_FIND(Py_IncRef) && CUVMM_FIND(Py_DecRef);
#undef CUVMM_FIND
}

// The functions, or nullptr. A program may load Python late, so a failure is not remembered.
const Interpreter* interpreter() {
  static constinit std::atomic<const Interpreter*> found{nullptr};
  const Interpreter* known = found.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  Interpreter python;
  if (!find_all(python)) return nullptr;
  const auto* mine = new Interpreter(python);
  if (found.compare_exchange_strong(known, mine)) return mine;
  delete mine;
  return known;
}

// Whether this thread may call the interpreter: its own state is the one that runs.
bool holds_lock(const Interpreter& python) {
  if (python.Py_IsInitialized() == 0) return false;
  Object const running = python.PyThreadState_GetUnchecked();
  return running != nullptr && running == python.PyGILState_GetThisThreadState();
}

// The collector would run finalizers, which are the program's code: they could free memory while
// the caller holds its own locks.
class NoCollection {
 public:
  explicit NoCollection(const Interpreter& python) : python_(python) {
    was_on_ = python.PyGC_Enable != nullptr && python.PyGC_Disable != nullptr &&
              python.PyGC_Disable() != 0;
  }
  ~NoCollection() {
    if (was_on_) python_.PyGC_Enable();
  }
  NoCollection(const NoCollection&) = delete;
  NoCollection& operator=(const NoCollection&) = delete;

 private:
  const Interpreter& python_;
  bool was_on_;
};

// An attribute that is text. Its characters are valid for this object's lifetime.
class Text {
 public:
  Text(const Interpreter& python, Object object, const char* attribute)
      : python_(python), value_(python.PyObject_GetAttrString(object, attribute)) {
    if (value_ != nullptr) letters_ = python.PyUnicode_AsUTF8(value_);
    if (letters_ == nullptr) python.PyErr_Clear();
  }
  ~Text() {
    if (value_ != nullptr) python_.Py_DecRef(value_);
  }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  const char* or_else(const char* otherwise) const {
    return letters_ != nullptr ? letters_ : otherwise;
  }

 private:
  const Interpreter& python_;
  Object const value_;
  const char* letters_ = nullptr;
};

}  // namespace

std::size_t python_frames(std::span<Frame> frames) {
  const Interpreter* const python = interpreter();
  if (python == nullptr || !holds_lock(*python) || python->PyErr_Occurred() != nullptr) return 0;
  const NoCollection quiet{*python};
  std::size_t count = 0;
  Object frame = python->PyEval_GetFrame();
  if (frame != nullptr) python->Py_IncRef(frame);
  while (frame != nullptr && count < frames.size()) {
    Object const code = python->PyFrame_GetCode(frame);
    frames[count++] = {.code = reinterpret_cast<std::uint64_t>(code),
                       .line = static_cast<std::uint32_t>(python->PyFrame_GetLineNumber(frame)),
                       .is_python = true};
    python->Py_DecRef(code);  // the frame still holds it
    Object const caller = python->PyFrame_GetBack(frame);
    python->Py_DecRef(frame);
    frame = caller;
  }
  if (frame != nullptr) python->Py_DecRef(frame);
  if (python->PyErr_Occurred() != nullptr) python->PyErr_Clear();
  return count;
}

bool will_call_back(int (*back)(void*)) {
  const Interpreter* const python = interpreter();
  return python != nullptr && python->Py_IsInitialized() != 0 &&
         python->PyGILState_GetThisThreadState() != nullptr &&
         python->Py_AddPendingCall(back, nullptr) == 0;
}

std::string name_of_python(const Frame& frame) {
  const Interpreter* const python = interpreter();
  if (python == nullptr) return "?";
  const NoCollection quiet{*python};
  Object const code = reinterpret_cast<Object>(frame.code);
  python->Py_IncRef(code);
  const Text short_name{*python, code, "co_name"};
  const Text full_name{*python, code, "co_qualname"};  // from 3.11 on
  const Text file{*python, code, "co_filename"};
  char name[longest_name];
  std::snprintf(name, sizeof name, "%s (%s:%u)", full_name.or_else(short_name.or_else("?")),
                file.or_else("?"), frame.line);
  return name;
}

}  // namespace cuvmm::stacks
