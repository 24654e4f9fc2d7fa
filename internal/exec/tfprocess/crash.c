#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { kCalls = 64 };

/* The signals of a crash. In Go's code the first ones are a mistake that is a panic. */
static const struct {
	int number;
	const char *name;
	bool panics;
} signals[] = {
	{SIGSEGV, "SIGSEGV", true}, {SIGBUS, "SIGBUS", true}, {SIGFPE, "SIGFPE", true}, {SIGABRT, "SIGABRT"}, {SIGILL, "SIGILL"},
};
enum { kSignals = sizeof signals / sizeof *signals };

static struct sigaction gos[NSIG]; /* Go's handlers */
static bool cores;
static _Thread_local volatile sig_atomic_t in_c; /* whether C code got the signal */

/* Writes to standard error what a handler can. */
static void say(const char *text) {
	while (*text != '\0') {
		ssize_t n = write(STDERR_FILENO, text, strlen(text));
		if (n < 0 && errno != EINTR) {
			return;
		}
		text += n > 0 ? n : 0;
	}
}

/* Returns whether code is the program's own, not a library's. */
static bool own(const void *code) {
	Dl_info this, that;
	return dladdr((void *)own, &this) != 0 && dladdr(code, &that) != 0 && this.dli_fbase == that.dli_fbase;
}

/* Writes the calls of the thread, down to those of Go's code, which has none that C can follow. */
static void say_calls(void) {
	void *calls[kCalls];
	int count = backtrace(calls, kCalls), first = 0;
	while (first < count && own(calls[first])) {
		first++; /* these handlers */
	}
	first++; /* the return of a handler */
	if (count - first > 1) { /* not only Go, which ends the process after its own dump */
		backtrace_symbols_fd(calls + first, count - first, STDERR_FILENO);
	}
}

/* Ends the process with a signal. */
static void end(int number) {
	struct rlimit limit;
	if (!cores && getrlimit(RLIMIT_CORE, &limit) == 0) {
		limit.rlim_cur = 0;
		setrlimit(RLIMIT_CORE, &limit);
	}
	signal(number, SIG_DFL);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, number);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	raise(number);
	_exit(128 + number); /* the first process of a container, which its own signals do not end */
}

/* Says that the process crashed, and ends it. */
static void crash(int number, siginfo_t *info, void *context) {
	(void)info, (void)context;
	static atomic_flag crashed = ATOMIC_FLAG_INIT;
	if (atomic_flag_test_and_set(&crashed)) {
		for (;;) {
			pause(); /* until the first thread that crashed has ended the process */
		}
	}
	const char *name = "a signal";
	for (int i = 0; i < kSignals; i++) {
		name = signals[i].number == number ? signals[i].name : name;
	}
	say_calls();
	say(program_invocation_short_name);
	say(": crashed with ");
	say(name);
	say(", by a defect or for want of memory; report it with the lines above; the same command continues a run from its last checkpoint\n");
	end(number);
}

/* Go's handlers call this one, which was there before them, for a signal that C code got. */
static void note(int number, siginfo_t *info, void *context) {
	(void)number, (void)info, (void)context;
	in_c = 1;
}

/* Handles a signal that may be a panic. */
static void judge(int number, siginfo_t *info, void *context) {
	in_c = 0;
	if (info->si_code > 0) { /* it is the kernel's, not sent by a process */
		gos[number].sa_sigaction(number, info, context);
		if (!in_c) {
			return;
		}
	}
	crash(number, info, context);
}

/* Handles SIGQUIT. Go prints its goroutines, and sends the signal again, to its other threads. */
static void quit(int number, siginfo_t *info, void *context) {
	static atomic_flag printed = ATOMIC_FLAG_INIT;
	if (atomic_flag_test_and_set(&printed)) {
		end(number);
	}
	gos[number].sa_sigaction(number, info, context);
}

static void handle(int number, void (*handler)(int, siginfo_t *, void *)) {
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
	sigfillset(&action.sa_mask);
	sigaction(number, &action, &gos[number]);
}

/* Runs before Go sets up its handlers. */
__attribute__((constructor)) static void before(void) {
	for (int i = 0; i < kSignals; i++) {
		if (signals[i].panics) {
			handle(signals[i].number, note);
		}
	}
}

/* Makes crashes end the process with their signal, once Go has set up its handlers. */
void gorbit_end_crashes(bool with_cores) {
	cores = with_cores;
	void *call;
	backtrace(&call, 1); /* loads the library for it, which a handler cannot */
	for (int i = 0; i < kSignals; i++) {
		handle(signals[i].number, signals[i].panics ? judge : crash);
	}
	handle(SIGQUIT, quit);
}
