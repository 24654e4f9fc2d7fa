/* Entries of TensorFlow's C functions, for 64-bit ARM. They work as those for x86-64 (entries_amd64.h).
 * x16 and x17 are free for code between a caller and a function. */
	.text
	.type load, %function
load: /* x17 has the function's index */
	stp x29, x30, [sp, -224]!
	mov x29, sp
	stp x0, x1, [sp, 16]
	stp x2, x3, [sp, 32]
	stp x4, x5, [sp, 48]
	stp x6, x7, [sp, 64]
	str x8, [sp, 80]
	stp q0, q1, [sp, 96]
	stp q2, q3, [sp, 128]
	stp q4, q5, [sp, 160]
	stp q6, q7, [sp, 192]
	mov x0, x17
	bl gorbit_tensorflow_load
	mov x16, x0
	ldp q6, q7, [sp, 192]
	ldp q4, q5, [sp, 160]
	ldp q2, q3, [sp, 128]
	ldp q0, q1, [sp, 96]
	ldr x8, [sp, 80]
	ldp x6, x7, [sp, 64]
	ldp x4, x5, [sp, 48]
	ldp x2, x3, [sp, 32]
	ldp x0, x1, [sp, 16]
	ldp x29, x30, [sp], 224
	br x16

	.macro entry name, index
	.globl \name
	.hidden \name
	.type \name, %function
\name:
	adrp x16, gorbit_tensorflow_functions + 8 * \index
	ldr x16, [x16, :lo12:gorbit_tensorflow_functions + 8 * \index]
	br x16
0:
	mov x17, \index
	b load
	.pushsection .data.rel, "aw"
	.xword 0b
	.popsection
	.pushsection .rodata.str1.1, "aMS", %progbits, 1
1:
	.string "\name"
	.popsection
	.pushsection .data.rel.ro, "aw"
	.xword 1b
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
	.section .note.GNU-stack, "", %progbits
	.text
