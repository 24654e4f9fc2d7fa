#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>

/* Twice the size of the signal stacks of Go's own threads. Unused parts take no memory. */
enum { kSize = 64 << 10 };

/* The function and argument of a thread. They are kept at the low end of its alternate stack until
 * it runs. */
typedef struct {
	void *(*run)(void *);
	void *argument;
} task_t;

static void give_back(void *stack) {
	stack_t none = {.ss_flags = SS_DISABLE};
	sigaltstack(&none, NULL);
	munmap(stack, kSize);
}

static void *start(void *stack) {
	task_t task = *(task_t *)stack;
	stack_t own = {.ss_sp = stack, .ss_size = kSize};
	sigaltstack(&own, NULL);
	void *result;
	pthread_cleanup_push(give_back, stack);
	result = task.run(task.argument);
	pthread_cleanup_pop(1);
	return result;
}

/* Replaces the C library's pthread_create in all libraries of the program. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
	static int (*libc)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	if (__atomic_load_n(&libc, __ATOMIC_RELAXED) == NULL) {
		__atomic_store_n(&libc, dlsym(RTLD_NEXT, "pthread_create"), __ATOMIC_RELAXED);
	}
	void *stack = mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (stack == MAP_FAILED) {
		return libc(thread, attributes, run, argument);
	}
	*(task_t *)stack = (task_t){run, argument};
	int error = libc(thread, attributes, start, stack);
	if (error != 0) {
		munmap(stack, kSize);
	}
	return error;
}
