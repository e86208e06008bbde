// SPDX-License-Identifier: Apache-2.0
#include "sim/interpreter/memory_access.hpp"

#include <atomic>
#include <cstring>
#include <type_traits>

#include "sim/interpreter/thread_block.hpp"

namespace cuvmm::sim {
namespace {

std::byte* outside(Warp& warp, unsigned lane, std::uint64_t address, const char* what) {
  fail_kernel(warp, lane, CUDA_ERROR_ILLEGAL_ADDRESS, what, address);
}

// Translates the address of `size` bytes. If the device may not access the memory, the access
// itself faults.
template <PtxStateSpace space>
std::byte* place_of(Warp& warp, unsigned lane, std::uint64_t address, Size size) {
  ThreadBlock& block = warp.block();
  std::byte* place = nullptr;
  if constexpr (space == PtxStateSpace::Shared) {
    place = block.shared(address, size);
    if (place == nullptr) outside(warp, lane, address, "beyond the block's shared memory");
  } else if constexpr (space == PtxStateSpace::Local) {
    place = block.local(warp, lane, address, size);
    if (place == nullptr) outside(warp, lane, address, "beyond the thread's local memory");
  } else {
    place = block.seen_at(address);
  }
  if ((address & (size - 1)) != 0) {
    fail_kernel(warp, lane, CUDA_ERROR_MISALIGNED_ADDRESS, "not a multiple of the access's size",
                address);
  }
  return place;
}

std::uint64_t address_in(const Warp& warp, const Instruction& instruction, unsigned lane) {
  return warp.read(instruction.a, instruction.width_a, lane) +
         static_cast<std::uint64_t>(instruction.immediate);
}

template <class T>
T load_relaxed(const std::byte* place) {
  return __atomic_load_n(reinterpret_cast<const T*>(place), __ATOMIC_RELAXED);
}
template <class T>
void store_relaxed(std::byte* place, T value) {
  __atomic_store_n(reinterpret_cast<T*>(place), value, __ATOMIC_RELAXED);
}

// Sign-extended if signed, for registers wider than the loaded type.
template <class T>
std::uint64_t extended(T value) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
}

template <class T, PtxStateSpace space>
void run_load(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const ListedOperand* list = warp.block().program().operands.data() + instruction.first;
  if (instruction.count == 1 && list[0].width == sizeof(T)) {
    T* d = warp.lanes_of<T>(list[0].at);
    each_lane(lanes, [&](unsigned lane) {
      const std::uint64_t address = address_in(warp, instruction, lane);
      warp.lane_now = lane;
      warp.address_now = address;
      d[lane] = load_relaxed<T>(place_of<space>(warp, lane, address, sizeof(T)));
    });
    return;
  }
  each_lane(lanes, [&](unsigned lane) {
    const std::uint64_t address = address_in(warp, instruction, lane);
    warp.lane_now = lane;
    warp.address_now = address;
    const std::byte* place = place_of<space>(warp, lane, address, sizeof(T) * instruction.count);
    T values[8];
    for (unsigned i = 0; i < instruction.count; ++i) {
      values[i] = load_relaxed<T>(place + i * sizeof(T));
    }
    for (unsigned i = 0; i < instruction.count; ++i) {
      if (list[i].at != no_operand) {
        warp.write(list[i].at, list[i].width, lane, extended(values[i]));
      }
    }
  });
}

template <class T, PtxStateSpace space>
void run_store(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const ListedOperand* list = warp.block().program().operands.data() + instruction.first;
  each_lane(lanes, [&](unsigned lane) {
    const std::uint64_t address = address_in(warp, instruction, lane);
    warp.lane_now = lane;
    warp.address_now = address;
    std::byte* place = place_of<space>(warp, lane, address, sizeof(T) * instruction.count);
    for (unsigned i = 0; i < instruction.count; ++i) {
      store_relaxed<T>(place + i * sizeof(T),
                       static_cast<T>(warp.read(list[i].at, list[i].width, lane)));
    }
  });
}

template <class T, bool loads>
Execute in_space(PtxStateSpace space) {
  switch (space) {
    case PtxStateSpace::Shared:
      return loads ? &run_load<T, PtxStateSpace::Shared> : &run_store<T, PtxStateSpace::Shared>;
    case PtxStateSpace::Local:
      return loads ? &run_load<T, PtxStateSpace::Local> : &run_store<T, PtxStateSpace::Local>;
    default:
      return loads ? &run_load<T, PtxStateSpace::Generic> : &run_store<T, PtxStateSpace::Generic>;
  }
}

template <bool loads>
Execute access_of(const MemoryAccess& access) {
  switch (access.type) {
    case PtxType::B8:
    case PtxType::U8:
      return in_space<std::uint8_t, loads>(access.space);
    case PtxType::B16:
    case PtxType::U16:
    case PtxType::F16:
    case PtxType::BF16:
      return in_space<std::uint16_t, loads>(access.space);
    case PtxType::B32:
    case PtxType::U32:
    case PtxType::F32:
    case PtxType::F16x2:
    case PtxType::BF16x2:
      return in_space<std::uint32_t, loads>(access.space);
    case PtxType::B64:
    case PtxType::U64:
    case PtxType::F64:
      return in_space<std::uint64_t, loads>(access.space);
    case PtxType::S8:
      return in_space<std::int8_t, loads>(access.space);
    case PtxType::S16:
      return in_space<std::int16_t, loads>(access.space);
    case PtxType::S32:
      return in_space<std::int32_t, loads>(access.space);
    case PtxType::S64:
      return in_space<std::int64_t, loads>(access.space);
    default:
      return nullptr;
  }
}

struct AtomicAdd {
  template <class T>
  static T of(T old, T b, T) {
    return static_cast<T>(old + b);
  }
};
struct AtomicExchange {
  template <class T>
  static T of(T, T b, T) {
    return b;
  }
};
struct AtomicCompareSwap {
  template <class T>
  static T of(T old, T b, T c) {
    return old == b ? c : old;
  }
};
struct AtomicMinimum {
  template <class T>
  static T of(T old, T b, T) {
    return b < old ? b : old;
  }
};
struct AtomicMaximum {
  template <class T>
  static T of(T old, T b, T) {
    return b > old ? b : old;
  }
};
struct AtomicAnd {
  template <class T>
  static T of(T old, T b, T) {
    return old & b;
  }
};
struct AtomicOr {
  template <class T>
  static T of(T old, T b, T) {
    return old | b;
  }
};
struct AtomicXor {
  template <class T>
  static T of(T old, T b, T) {
    return old ^ b;
  }
};
struct AtomicIncrement {
  template <class T>
  static T of(T old, T b, T) {
    return old >= b ? T{0} : static_cast<T>(old + 1);
  }
};
struct AtomicDecrement {
  template <class T>
  static T of(T old, T b, T) {
    return old == 0 || old > b ? b : static_cast<T>(old - 1);
  }
};

template <class T>
using Stored = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class T, class Function, PtxStateSpace space>
void run_atomic(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  each_lane(lanes, [&](unsigned lane) {
    const std::uint64_t address = address_in(warp, instruction, lane);
    warp.lane_now = lane;
    warp.address_now = address;
    auto* place = reinterpret_cast<Stored<T>*>(place_of<space>(warp, lane, address, sizeof(T)));
    const T b = warp.lanes_of<T>(instruction.b)[lane];
    const T c = instruction.c == no_operand ? T{} : warp.lanes_of<T>(instruction.c)[lane];
    Stored<T> old_bits = __atomic_load_n(place, __ATOMIC_RELAXED);
    for (;;) {
      T old{};
      std::memcpy(&old, &old_bits, sizeof old);
      const T wanted = Function::of(old, b, c);
      Stored<T> wanted_bits{};
      std::memcpy(&wanted_bits, &wanted, sizeof wanted);
      if (__atomic_compare_exchange_n(place, &old_bits, wanted_bits, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE)) {
        break;
      }
    }
    if (instruction.d != no_operand) {
      std::memcpy(warp.lanes_of<T>(instruction.d) + lane, &old_bits, sizeof(T));
    }
  });
}

template <class T, class Function>
Execute atomic_in(PtxStateSpace space) {
  return space == PtxStateSpace::Shared ? &run_atomic<T, Function, PtxStateSpace::Shared>
                                        : &run_atomic<T, Function, PtxStateSpace::Generic>;
}

template <class T>
Execute whole_atomic(std::string_view operation, PtxStateSpace space) {
  if (operation == "add") return atomic_in<T, AtomicAdd>(space);
  if (operation == "min") return atomic_in<T, AtomicMinimum>(space);
  if (operation == "max") return atomic_in<T, AtomicMaximum>(space);
  if (operation == "exch") return atomic_in<T, AtomicExchange>(space);
  if (operation == "cas") return atomic_in<T, AtomicCompareSwap>(space);
  if (operation == "and") return atomic_in<T, AtomicAnd>(space);
  if (operation == "or") return atomic_in<T, AtomicOr>(space);
  if (operation == "xor") return atomic_in<T, AtomicXor>(space);
  if (operation == "inc" && sizeof(T) == 4) return atomic_in<T, AtomicIncrement>(space);
  if (operation == "dec" && sizeof(T) == 4) return atomic_in<T, AtomicDecrement>(space);
  return nullptr;
}

std::uint64_t base_of(PtxStateSpace space, Warp& warp, unsigned lane) {
  if (space == PtxStateSpace::Shared) {
    return reinterpret_cast<std::uint64_t>(warp.block().shared_begin());
  }
  if (space == PtxStateSpace::Local) {
    return reinterpret_cast<std::uint64_t>(warp.block().local_begin(warp, lane));
  }
  return 0;
}

}  // namespace

Execute load_of(const MemoryAccess& access) {
  return access_of<true>(access);
}
Execute store_of(const MemoryAccess& access) {
  return access_of<false>(access);
}

Execute atomic_of(const AtomicAccess& access) {
  switch (access.type) {
    case PtxType::U32:
    case PtxType::B32:
      return whole_atomic<std::uint32_t>(access.operation, access.space);
    case PtxType::U64:
    case PtxType::B64:
      return whole_atomic<std::uint64_t>(access.operation, access.space);
    case PtxType::S32:
      return whole_atomic<std::int32_t>(access.operation, access.space);
    case PtxType::S64:
      return whole_atomic<std::int64_t>(access.operation, access.space);
    case PtxType::F32:
      return access.operation == "add" ? atomic_in<float, AtomicAdd>(access.space) : nullptr;
    case PtxType::F64:
      return access.operation == "add" ? atomic_in<double, AtomicAdd>(access.space) : nullptr;
    default:
      return nullptr;
  }
}

void run_to_generic(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const auto space = static_cast<PtxStateSpace>(instruction.variant);
  each_lane(lanes, [&](unsigned lane) {
    warp.write(instruction.d, instruction.width_d, lane,
               warp.read(instruction.a, instruction.width_a, lane) + base_of(space, warp, lane));
  });
}

void run_from_generic(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const auto space = static_cast<PtxStateSpace>(instruction.variant);
  each_lane(lanes, [&](unsigned lane) {
    warp.write(instruction.d, instruction.width_d, lane,
               warp.read(instruction.a, instruction.width_a, lane) - base_of(space, warp, lane));
  });
}

void run_is_in_space(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const auto space = static_cast<PtxStateSpace>(instruction.variant);
  const ThreadBlock& block = warp.block();
  std::uint32_t result = 0;
  each_lane(lanes, [&](unsigned lane) {
    const std::uint64_t address = warp.read(instruction.a, instruction.width_a, lane);
    const bool in_shared =
        address - base_of(PtxStateSpace::Shared, warp, lane) < block.shared_bytes();
    const bool in_local =
        address - base_of(PtxStateSpace::Local, warp, lane) < block.program().local_bytes;
    const bool is_in = space == PtxStateSpace::Shared  ? in_shared
                       : space == PtxStateSpace::Local ? in_local
                                                       : !in_shared && !in_local;
    if (is_in) result |= 1U << lane;
  });
  warp.set_predicate(instruction.d, lanes, result);
}

void run_local_copy(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  ThreadBlock& block = warp.block();
  each_lane(lanes, [&](unsigned lane) {
    std::byte* begin = block.local_begin(warp, lane);
    std::memmove(begin + instruction.d, begin + instruction.a,
                 static_cast<std::size_t>(instruction.immediate));
  });
}

void run_fence(Warp&, const Instruction&, std::uint32_t) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace cuvmm::sim
