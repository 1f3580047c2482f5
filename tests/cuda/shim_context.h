/*
 * Contexts of the shim's fibers. ucontext saves the signal mask, two system calls a switch, and
 * AddressSanitizer clears the shadow of a whole stack at each: three quarters of a test's time. So x86-64 has
 * a switch of its own.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_TESTS_CUDA_SHIM_CONTEXT_H
#define GW_TESTS_CUDA_SHIM_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__ELF__)

struct gw_shim_context {
    void *stack_pointer;
};

/* Pushes what a function must preserve, and pops what the last switch away from `to` has pushed.
 * Floating-point control words are the same everywhere: kernels do not set them. */
extern "C" void gw_shim_switch(gw_shim_context *from, const gw_shim_context *to);
asm(".pushsection .text\n"
    ".p2align 4\n"
    ".hidden gw_shim_switch\n"
    ".type gw_shim_switch, @function\n"
    "gw_shim_switch:\n"
    "    push %rbp\n"
    "    push %rbx\n"
    "    push %r12\n"
    "    push %r13\n"
    "    push %r14\n"
    "    push %r15\n"
    "    mov %rsp, (%rdi)\n"
    "    mov (%rsi), %rsp\n"
    "    pop %r15\n"
    "    pop %r14\n"
    "    pop %r13\n"
    "    pop %r12\n"
    "    pop %rbx\n"
    "    pop %rbp\n"
    "    ret\n"
    ".size gw_shim_switch, . - gw_shim_switch\n"
    ".popsection\n");

/* The first switch to the context calls `entry`, which never returns. */
inline void gw_shim_prepare(gw_shim_context *context, unsigned char *stack, size_t stack_size,
                            void (*entry)())
{
    const uintptr_t top = (uintptr_t)(stack + stack_size) & ~(uintptr_t)15;
    uintptr_t *const at = (uintptr_t *)top - 8;

    for (int i = 0; i < 8; i++) {
        at[i] = 0;
    }
    at[6] = (uintptr_t)entry; /* after six registers; entry finds its stack as after a call */
    context->stack_pointer = at;
}

#else
#include <ucontext.h>

struct gw_shim_context {
    ucontext_t context;
};

inline void gw_shim_switch(gw_shim_context *from, const gw_shim_context *to)
{
    swapcontext(&from->context, &to->context);
}

inline void gw_shim_prepare(gw_shim_context *context, unsigned char *stack, size_t stack_size,
                            void (*entry)())
{
    getcontext(&context->context);
    context->context.uc_stack.ss_sp = stack;
    context->context.uc_stack.ss_size = stack_size;
    context->context.uc_link = nullptr;
    makecontext(&context->context, entry, 0);
}

#endif
#endif
