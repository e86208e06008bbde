// SPDX-License-Identifier: Apache-2.0
// Bits, bytes, long products and warp functions, compared with the host.
#include <algorithm>
#include <cstdint>

#include "must.cuh"

struct Results {
  unsigned reversed, permuted, funnel_left, funnel_right;
  int ones, zeros, first, high;
  unsigned long long reversed_long, product_high;
  int dot_signed;
  unsigned dot_unsigned, absolute_sum, average, bytes_added, bytes_equal;
  unsigned ballot, active, same, group;
  int any, all;
  unsigned add_of_warp, or_of_warp, from_neighbour;
  int max_of_warp;
};

__global__ void evaluate(const unsigned* values, Results* results, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned a = values[i % count];
  const unsigned b = values[(i + 1) % count];
  const unsigned c = values[(i + 2) % count];
  Results r{};
  r.reversed = __brev(a);
  r.permuted = __byte_perm(a, b, c);
  r.funnel_left = __funnelshift_l(a, b, c);
  r.funnel_right = __funnelshift_rc(a, b, c % 40);
  r.ones = __popc(a);
  r.zeros = __clz(static_cast<int>(a >> (b % 32)));
  r.first = __ffs(static_cast<int>(a & ~1U));
  r.high = __mulhi(static_cast<int>(a), static_cast<int>(b));
  const unsigned long long wide = (static_cast<unsigned long long>(a) << 32) | b;
  r.reversed_long = __brevll(wide);
  r.product_high = __umul64hi(wide, wide ^ c);
  r.dot_signed = __dp4a(static_cast<int>(a), static_cast<int>(b), static_cast<int>(c));
  r.dot_unsigned = __dp4a(a, b, c);
  r.absolute_sum = __usad(a, b, c);
  r.average = __uhadd(a, b);
  r.bytes_added = __vadd4(a, b);
  r.bytes_equal = __vcmpeq4(a, b);
  r.ballot = __ballot_sync(0xffffffff, a & 1);
  r.active = __activemask();
  r.same = __match_any_sync(0xffffffff, a % 3);
  r.any = __any_sync(0xffffffff, a % 50 == 0);
  r.all = __all_sync(0xffffffff, a != b);
  r.from_neighbour = __shfl_xor_sync(0xffffffff, a, 1);
#if __CUDA_ARCH__ >= 800
  r.add_of_warp = __reduce_add_sync(0xffffffff, a);
  r.or_of_warp = __reduce_or_sync(0xffffffff, a);
  r.max_of_warp = __reduce_max_sync(0xffffffff, static_cast<int>(a));
#endif
  if (a % 2 == 0) r.group = __activemask();
  results[i] = r;
}

unsigned reversed(unsigned value) {
  unsigned result = 0;
  for (int bit = 0; bit < 32; ++bit) result |= (value >> bit & 1) << (31 - bit);
  return result;
}

int main() {
  constexpr int count = 64;
  const auto values = random_numbers(count, 5);
  unsigned* memory = on_device(values);
  Results* results = nullptr;
  MUST(cudaMalloc(&results, count * sizeof(Results)));
  evaluate<<<2, 32>>>(memory, results, count);
  MUST(cudaGetLastError());
  const auto found = on_host(results, count);
  for (int i = 0; i < count; ++i) {
    const unsigned a = values[i];
    const unsigned b = values[(i + 1) % count];
    const unsigned c = values[(i + 2) % count];
    const Results& r = found[i];
    const std::uint64_t pair = (std::uint64_t{b} << 32) | a;
    const std::uint64_t wide = (std::uint64_t{a} << 32) | b;
    expect_near("reversed", i, r.reversed, reversed(a));
    unsigned permuted = 0;
    for (int byte = 0; byte < 4; ++byte) {
      permuted |= unsigned(pair >> (8 * (c >> (4 * byte) & 7)) & 0xff) << (8 * byte);
    }
    expect_near("permuted", i, r.permuted, permuted);
    expect_near("funnel left", i, r.funnel_left, unsigned((pair << (c & 31)) >> 32));
    expect_near("funnel right", i, r.funnel_right, unsigned(pair >> std::min(c % 40, 32U)));
    expect_near("ones", i, r.ones, __builtin_popcount(a));
    const unsigned shifted = a >> (b % 32);
    expect_near("zeros", i, r.zeros, shifted == 0 ? 32 : __builtin_clz(shifted));
    expect_near("first", i, r.first, __builtin_ffs(int(a & ~1U)));
    expect_near("high", i, r.high, int((std::int64_t(int(a)) * int(b)) >> 32));
    const std::uint64_t reversed_long =
        (std::uint64_t{reversed(unsigned(wide))} << 32) | reversed(unsigned(wide >> 32));
    if (r.reversed_long != reversed_long) expect_near("reversed long", i, 0, 1);
    const auto product = static_cast<unsigned __int128>(wide) * (wide ^ c);
    if (r.product_high != std::uint64_t(product >> 64)) expect_near("product high", i, 0, 1);
    int dot_signed = int(c);
    unsigned dot_unsigned = c;
    unsigned bytes_added = 0;
    unsigned bytes_equal = 0;
    for (int byte = 0; byte < 4; ++byte) {
      const unsigned x = a >> (8 * byte) & 0xff;
      const unsigned y = b >> (8 * byte) & 0xff;
      dot_signed = int(unsigned(dot_signed) +
                       unsigned(int(std::int8_t(x)) * int(std::int8_t(y))));
      dot_unsigned += x * y;
      bytes_added |= (x + y & 0xff) << (8 * byte);
      if (x == y) bytes_equal |= 0xffU << (8 * byte);
    }
    expect_near("dot signed", i, r.dot_signed, dot_signed);
    expect_near("dot unsigned", i, r.dot_unsigned, dot_unsigned);
    expect_near("absolute sum", i, r.absolute_sum, unsigned(c + (a > b ? a - b : b - a)));
    expect_near("average", i, r.average, unsigned((std::uint64_t{a} + b) >> 1));
    expect_near("bytes added", i, r.bytes_added, bytes_added);
    expect_near("bytes equal", i, r.bytes_equal, bytes_equal);
    const int begin = i / 32 * 32;
    unsigned ballot = 0;
    unsigned same = 0;
    unsigned even = 0;
    bool any = false;
    bool all = true;
    unsigned sum = 0;
    unsigned ored = 0;
    int largest = INT32_MIN;
    for (int lane = 0; lane < 32; ++lane) {
      const unsigned other = values[begin + lane];
      ballot |= (other & 1) << lane;
      if (other % 3 == a % 3) same |= 1U << lane;
      if (other % 2 == 0) even |= 1U << lane;
      any |= other % 50 == 0;
      all &= other != values[(begin + lane + 1) % count];
      sum += other;
      ored |= other;
      largest = std::max(largest, int(other));
    }
    expect_near("ballot", i, r.ballot, ballot);
    expect_near("active", i, r.active, 0xffffffffU);
    expect_near("same", i, r.same, same);
    expect_near("any", i, r.any != 0, any);
    expect_near("all", i, r.all != 0, all);
    expect_near("neighbour", i, r.from_neighbour, values[i ^ 1]);
    if (r.add_of_warp != 0) {
      expect_near("sum of warp", i, r.add_of_warp, sum);
      expect_near("or of warp", i, r.or_of_warp, ored);
      expect_near("largest of warp", i, r.max_of_warp, largest);
    }
    expect_near("group", i, r.group, a % 2 == 0 ? even : 0);
  }
  return 0;
}
