/* SPDX-License-Identifier: Apache-2.0 */
/* The assembler code of the stub, for stub.c.
 *
 * cuvmm_door makes a door, which jumps through its slot. While the slot is empty, cuvmm_stub_enter
 * first resolves the name, and preserves all registers that may hold arguments.
 *
 * In cuvmm_stub_dlsym, RTLD_NEXT and RTLD_DEFAULT mean something that depends on the caller, which
 * the real dlsym reads from the return address: so it is jumped to, with the stack of the caller.
 */
#pragma once

/* clang-format off */
#if defined(__x86_64__)
asm(R"(
.macro cuvmm_door name
  .pushsection .rodata.cuvmm_names, "a", %progbits
  .Lname_\name: .asciz "\name"
  .popsection
  .pushsection .bss
  .balign 8
  .Lslot_\name: .zero 8
  .popsection
  .pushsection .text
  .globl \name
  .type \name, %function
\name:
  .cfi_startproc
  endbr64
  mov .Lslot_\name(%rip), %r11
  test %r11, %r11
  jz .Lempty_\name
  jmp *%r11
.Lempty_\name:
  lea .Lname_\name(%rip), %r11
  lea .Lslot_\name(%rip), %r10
  jmp cuvmm_stub_enter
  .cfi_endproc
  .size \name, . - \name
  .popsection
.endm

.pushsection .text
cuvmm_stub_enter:
  .cfi_startproc
  push %rax
  push %rdi
  push %rsi
  push %rdx
  push %rcx
  push %r8
  push %r9
  sub $128, %rsp
  .cfi_adjust_cfa_offset 184
  movups %xmm0, (%rsp)
  movups %xmm1, 16(%rsp)
  movups %xmm2, 32(%rsp)
  movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp)
  movups %xmm5, 80(%rsp)
  movups %xmm6, 96(%rsp)
  movups %xmm7, 112(%rsp)
  mov %r11, %rdi
  mov %r10, %rsi
  call cuvmm_stub_resolve
  mov %rax, %r11
  movups (%rsp), %xmm0
  movups 16(%rsp), %xmm1
  movups 32(%rsp), %xmm2
  movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4
  movups 80(%rsp), %xmm5
  movups 96(%rsp), %xmm6
  movups 112(%rsp), %xmm7
  add $128, %rsp
  pop %r9
  pop %r8
  pop %rcx
  pop %rdx
  pop %rsi
  pop %rdi
  pop %rax
  .cfi_adjust_cfa_offset -184
  jmp *%r11
  .cfi_endproc

.globl cuvmm_stub_dlsym
.hidden cuvmm_stub_dlsym
.type cuvmm_stub_dlsym, %function
cuvmm_stub_dlsym:
  .cfi_startproc
  endbr64
  push %rdi
  push %rsi
  sub $8, %rsp
  .cfi_adjust_cfa_offset 24
  lea 16(%rsp), %rdi
  call cuvmm_stub_decide_dlsym
  add $8, %rsp
  pop %rsi
  pop %rdi
  .cfi_adjust_cfa_offset -24
  jmp *%rax
  .cfi_endproc
.size cuvmm_stub_dlsym, . - cuvmm_stub_dlsym
.popsection
)");
#elif defined(__aarch64__)
/* A door acquires what the thread that filled the slot has loaded. */
asm(R"(
.macro cuvmm_door name
  .pushsection .rodata.cuvmm_names, "a", %progbits
  .Lname_\name: .asciz "\name"
  .popsection
  .pushsection .bss
  .balign 8
  .Lslot_\name: .zero 8
  .popsection
  .pushsection .text
  .globl \name
  .type \name, %function
\name:
  .cfi_startproc
  hint #34
  adrp x17, .Lslot_\name
  add x17, x17, :lo12:.Lslot_\name
  ldar x16, [x17]
  cbz x16, .Lempty_\name
  br x16
.Lempty_\name:
  adrp x16, .Lname_\name
  add x16, x16, :lo12:.Lname_\name
  b cuvmm_stub_enter
  .cfi_endproc
  .size \name, . - \name
  .popsection
.endm

.pushsection .text
cuvmm_stub_enter:
  .cfi_startproc
  stp x29, x30, [sp, #-224]!
  .cfi_adjust_cfa_offset 224
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov x0, x16
  mov x1, x17
  bl cuvmm_stub_resolve
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x29, x30, [sp], #224
  .cfi_adjust_cfa_offset -224
  .cfi_restore x29
  .cfi_restore x30
  br x16
  .cfi_endproc

.globl cuvmm_stub_dlsym
.hidden cuvmm_stub_dlsym
.type cuvmm_stub_dlsym, %function
cuvmm_stub_dlsym:
  .cfi_startproc
  hint #34
  stp x29, x30, [sp, #-32]!
  .cfi_adjust_cfa_offset 32
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  mov x29, sp
  stp x0, x1, [sp, #16]
  add x0, sp, #16
  bl cuvmm_stub_decide_dlsym
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_adjust_cfa_offset -32
  .cfi_restore x29
  .cfi_restore x30
  br x16
  .cfi_endproc
.size cuvmm_stub_dlsym, . - cuvmm_stub_dlsym
.popsection
)");
#endif
/* clang-format on */
