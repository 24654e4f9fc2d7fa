/* Loads TensorFlow's library when a program first calls one of its C functions.
 *
 * gorbit-setup makes an archive libtensorflow.a of this file and of an entry for each C function
 * (entries_*.h). Programs are linked with the archive in the place of the library. A command that needs
 * no TensorFlow starts in a tenth of the time, and the linker need not read the library's 200,000 names.
 *
 * The library is looked for in the folder that GORBIT_TENSORFLOW names, which the Python package gorbit
 * sets, or else where the program's run path says, as if the program were linked with it.
 *
 * GORBIT_RELEASES are the releases that gorbit works with, for the sentence of a function that is missing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern const char *const gorbit_tensorflow_names[];
extern void *gorbit_tensorflow_functions[];

static void fail(const char *what) {
	fprintf(stderr, "%s: TensorFlow's library cannot be loaded: %s; install the program with its library, or run gorbit-setup (in a checkout, make setup)\n",
		program_invocation_short_name, what);
	_exit(1);
}

static void *library;

static void load(void) {
	const char *file = "libtensorflow_cc.so.2", *folder = getenv("GORBIT_TENSORFLOW");
	char *path = NULL;
	if (folder != NULL && *folder != 0) {
		if (asprintf(&path, "%s/%s", folder, file) < 0) {
			fail("no memory");
		}
		file = path;
	}
	/* Global, as a library that the program is linked with: libraries that TensorFlow loads later need
	 * its names. */
	library = dlopen(file, RTLD_LAZY | RTLD_GLOBAL);
	if (library == NULL) {
		fail(dlerror());
	}
	free(path);
}

static void lacks(const char *function) {
	const char *(*version)(void);
	struct link_map *map = NULL;
	*(void **)&version = dlsym(RTLD_DEFAULT, "TF_Version");
	(void)dlinfo(library, RTLD_DI_LINKMAP, &map);
	fprintf(stderr, "%s: TensorFlow %s in %s lacks the function %s, which this command calls; expected TensorFlow " GORBIT_RELEASES
		": set GORBIT_TENSORFLOW to the folder of such a library, or run gorbit-setup (in a checkout, make setup)\n",
		program_invocation_short_name, version == NULL ? "of an unknown release" : version(), map == NULL ? "an unknown file" : map->l_name, function);
	_exit(1);
}

/* Loads the library, once, and returns function i. The entries call it, each until its slot has the
 * function. A function that a release lacks is missed when it is called, and not before. */
__attribute__((visibility("hidden"))) void *gorbit_tensorflow_load(unsigned long i) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, load);
	/* Of all libraries, as a linker does: a function of a library in LD_PRELOAD comes first. */
	void *f = dlsym(RTLD_DEFAULT, gorbit_tensorflow_names[i]);
	if (f == NULL) {
		lacks(gorbit_tensorflow_names[i]);
	}
	__atomic_store_n(&gorbit_tensorflow_functions[i], f, __ATOMIC_RELEASE);
	return f;
}
