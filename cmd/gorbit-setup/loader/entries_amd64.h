/* Entries of TensorFlow's C functions, for x86-64.
 *
 * An entry jumps to the address in its slot of gorbit_tensorflow_functions. Until its first call,
 * that is the address of the instructions behind the entry: they load the library, look the function up
 * and go on to it, with the registers that have arguments as they were. The symbols are hidden, so that
 * the library, whose functions have the same names, does not find these. */
	.text
	.type load, @function
load: /* on the stack: the function's index, the caller's address */
	pushq %rdi
	pushq %rsi
	pushq %rdx
	pushq %rcx
	pushq %r8
	pushq %r9
	pushq %rax
	subq $136, %rsp
	movups %xmm0, (%rsp)
	movups %xmm1, 16(%rsp)
	movups %xmm2, 32(%rsp)
	movups %xmm3, 48(%rsp)
	movups %xmm4, 64(%rsp)
	movups %xmm5, 80(%rsp)
	movups %xmm6, 96(%rsp)
	movups %xmm7, 112(%rsp)
	movq 192(%rsp), %rdi
	call gorbit_tensorflow_load
	movq %rax, %r11
	movups (%rsp), %xmm0
	movups 16(%rsp), %xmm1
	movups 32(%rsp), %xmm2
	movups 48(%rsp), %xmm3
	movups 64(%rsp), %xmm4
	movups 80(%rsp), %xmm5
	movups 96(%rsp), %xmm6
	movups 112(%rsp), %xmm7
	addq $136, %rsp
	popq %rax
	popq %r9
	popq %r8
	popq %rcx
	popq %rdx
	popq %rsi
	popq %rdi
	addq $8, %rsp
	jmp *%r11

	.macro entry name, index
	.globl \name
	.hidden \name
	.type \name, @function
\name:
	endbr64
	jmp *(gorbit_tensorflow_functions + 8 * \index)(%rip)
0:
	pushq $\index
	jmp load
	.pushsection .data.rel, "aw"
	.quad 0b
	.popsection
	.pushsection .rodata.str1.1, "aMS", @progbits, 1
1:
	.string "\name"
	.popsection
	.pushsection .data.rel.ro, "aw"
	.quad 1b
	.popsection
	.endm

	.pushsection .data.rel, "aw"
	.balign 8
	.globl gorbit_tensorflow_functions
	.hidden gorbit_tensorflow_functions
gorbit_tensorflow_functions:
	.popsection
	.pushsection .data.rel.ro, "aw"
	.balign 8
	.globl gorbit_tensorflow_names
	.hidden gorbit_tensorflow_names
gorbit_tensorflow_names:
	.popsection
	.section .note.GNU-stack, "", @progbits
	.text
