#include <stddef.h>
#include <string.h>

extern char **environ;

/* The value of an environment variable that the user has not set. */
static const struct {
	const char *name, *value;
} defaults[] = {
	{"TF_CPP_MIN_LOG_LEVEL", "2"},
	{"TF_ENABLE_ONEDNN_OPTS", "1"},
	/* A session with workers first connects to an address of this machine. */
	{"no_grpc_proxy", "127.0.0.1"},
	/* One process at a time has the chips of a TPU VM: see TPU in tpu.go. */
	{"TPU_LOAD_LIBRARY", "0"},
};

/* Replaces the C library's getenv in all libraries of the program. */
char *getenv(const char *name) {
	size_t n = strlen(name);
	for (char **e = environ; e != NULL && *e != NULL; e++) {
		if (strncmp(*e, name, n) == 0 && (*e)[n] == '=') {
			return *e + n + 1;
		}
	}
	for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
		if (strcmp(defaults[i].name, name) == 0) {
			return (char *)defaults[i].value;
		}
	}
	return NULL;
}
