// SPDX-License-Identifier: Apache-2.0
#include "support/kernels.hpp"

namespace cuvmm::test {

// Every kernel strides: thread i of n processes words i, i + n, and so on. %first and %step are 32
// bits wide, enough for 16 GiB of words.
const char* kernels_ptx() {
  return R"(
.version 7.0
.target sm_50
.address_size 64

.visible .entry fill(.param .u64 address, .param .u32 value, .param .u32 words)
{
  .reg .pred %done;
  .reg .b32 %i, %step, %count, %value, %block, %thread, %grid;
  .reg .b64 %base, %at;
  ld.param.u64 %base, [address];
  ld.param.u32 %value, [value];
  ld.param.u32 %count, [words];
  cvta.to.global.u64 %base, %base;
  mov.u32 %block, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %i, %ctaid.x;
  mov.u32 %grid, %nctaid.x;
  mul.lo.u32 %step, %block, %grid;
  mad.lo.u32 %i, %i, %block, %thread;
fill_loop:
  setp.ge.u32 %done, %i, %count;
  @%done bra fill_end;
  mul.wide.u32 %at, %i, 4;
  add.u64 %at, %at, %base;
  st.global.u32 [%at], %value;
  add.u32 %i, %i, %step;
  bra fill_loop;
fill_end:
  ret;
}

.visible .entry copy_words(.param .u64 to, .param .u64 from, .param .u32 words)
{
  .reg .pred %done;
  .reg .b32 %i, %step, %count, %value, %block, %thread, %grid;
  .reg .b64 %to, %from, %at, %source;
  ld.param.u64 %to, [to];
  ld.param.u64 %from, [from];
  ld.param.u32 %count, [words];
  cvta.to.global.u64 %to, %to;
  cvta.to.global.u64 %from, %from;
  mov.u32 %block, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %i, %ctaid.x;
  mov.u32 %grid, %nctaid.x;
  mul.lo.u32 %step, %block, %grid;
  mad.lo.u32 %i, %i, %block, %thread;
copy_loop:
  setp.ge.u32 %done, %i, %count;
  @%done bra copy_end;
  mul.wide.u32 %at, %i, 4;
  add.u64 %source, %at, %from;
  add.u64 %at, %at, %to;
  ld.global.u32 %value, [%source];
  st.global.u32 [%at], %value;
  add.u32 %i, %i, %step;
  bra copy_loop;
copy_end:
  ret;
}

.visible .entry add_one(.param .u64 address, .param .u32 words)
{
  .reg .pred %done;
  .reg .b32 %i, %step, %count, %value, %block, %thread, %grid;
  .reg .b64 %base, %at;
  ld.param.u64 %base, [address];
  ld.param.u32 %count, [words];
  cvta.to.global.u64 %base, %base;
  mov.u32 %block, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %i, %ctaid.x;
  mov.u32 %grid, %nctaid.x;
  mul.lo.u32 %step, %block, %grid;
  mad.lo.u32 %i, %i, %block, %thread;
add_loop:
  setp.ge.u32 %done, %i, %count;
  @%done bra add_end;
  mul.wide.u32 %at, %i, 4;
  add.u64 %at, %at, %base;
  ld.global.u32 %value, [%at];
  add.u32 %value, %value, 1;
  st.global.u32 [%at], %value;
  add.u32 %i, %i, %step;
  bra add_loop;
add_end:
  ret;
}

.visible .entry sum(.param .u64 out, .param .u64 in, .param .u32 words)
{
  .reg .pred %done;
  .reg .b32 %i, %step, %count, %value, %total, %block, %thread, %grid;
  .reg .b64 %out, %in, %at;
  ld.param.u64 %out, [out];
  ld.param.u64 %in, [in];
  ld.param.u32 %count, [words];
  cvta.to.global.u64 %out, %out;
  cvta.to.global.u64 %in, %in;
  mov.u32 %total, 0;
  mov.u32 %block, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %i, %ctaid.x;
  mov.u32 %grid, %nctaid.x;
  mul.lo.u32 %step, %block, %grid;
  mad.lo.u32 %i, %i, %block, %thread;
sum_loop:
  setp.ge.u32 %done, %i, %count;
  @%done bra sum_end;
  mul.wide.u32 %at, %i, 4;
  add.u64 %at, %at, %in;
  ld.global.u32 %value, [%at];
  add.u32 %total, %total, %value;
  add.u32 %i, %i, %step;
  bra sum_loop;
sum_end:
  red.global.add.u32 [%out], %total;
  ret;
}

.visible .entry spin(.param .u64 nanoseconds)
{
  .reg .pred %done;
  .reg .b64 %end, %now, %length;
  ld.param.u64 %length, [nanoseconds];
  mov.u64 %end, %globaltimer;
  add.u64 %end, %end, %length;
spin_loop:
  mov.u64 %now, %globaltimer;
  setp.lt.u64 %done, %now, %end;
  @%done bra spin_loop;
  ret;
}

.visible .entry wait_for_flag(.param .u64 address)
{
  .reg .pred %done;
  .reg .b32 %flag;
  .reg .b64 %at, %end, %now;
  ld.param.u64 %at, [address];
  cvta.to.global.u64 %at, %at;
  mov.u64 %end, %globaltimer;
  add.u64 %end, %end, 20000000000;
wait_loop:
  ld.volatile.global.u32 %flag, [%at];
  setp.ne.u32 %done, %flag, 0;
  @%done bra wait_end;
  mov.u64 %now, %globaltimer;
  setp.lt.u64 %done, %now, %end;
  @%done bra wait_loop;
  mov.u32 %flag, 1;
  st.volatile.global.u32 [%at+4], %flag;
wait_end:
  ret;
}

.visible .entry many_parameters(.param .u8 small, .param .u16 medium, .param .u32 word,
                                .param .u64 wide, .param .align 8 .b8 three[24], .param .u64 out)
{
  .reg .pred %other;
  .reg .b16 %h;
  .reg .b32 %w, %thread, %block;
  .reg .b64 %out, %v;
  mov.u32 %thread, %tid.x;
  mov.u32 %block, %ctaid.x;
  or.b32 %thread, %thread, %block;
  setp.ne.u32 %other, %thread, 0;
  @%other bra many_end;
  ld.param.u64 %out, [out];
  cvta.to.global.u64 %out, %out;
  ld.param.u8 %h, [small];
  cvt.u64.u16 %v, %h;
  st.global.u64 [%out], %v;
  ld.param.u16 %h, [medium];
  cvt.u64.u16 %v, %h;
  st.global.u64 [%out+8], %v;
  ld.param.u32 %w, [word];
  cvt.u64.u32 %v, %w;
  st.global.u64 [%out+16], %v;
  ld.param.u64 %v, [wide];
  st.global.u64 [%out+24], %v;
  ld.param.u64 %v, [three];
  st.global.u64 [%out+32], %v;
  ld.param.u64 %v, [three+8];
  st.global.u64 [%out+40], %v;
  ld.param.u64 %v, [three+16];
  st.global.u64 [%out+48], %v;
many_end:
  ret;
}
)";
}

}  // namespace cuvmm::test
