#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char header[] = "WARNING: All log messages before absl::InitializeLog()";

/* Returns whether to drop a line: one of Abseil's log, such as
 * "I0000 00:00:1795238325.865342   32017 file.cc:401] text", that is less severe than
 * TF_CPP_MIN_LOG_LEVEL, or the line that Abseil writes before its first one. */
static bool unwanted(const char *line, size_t size) {
	static const char severities[] = {'I', 'W', 'E', 'F'};
	const char *variable = getenv("TF_CPP_MIN_LOG_LEVEL");
	int level = variable == NULL ? 0 : atoi(variable);
	if (level > 0 && size >= sizeof header - 1 && memcmp(line, header, sizeof header - 1) == 0) {
		return true;
	}
	if (size < 12 || line[5] != ' ' || line[8] != ':' || line[11] != ':') {
		return false;
	}
	for (int i = 1; i < 5; i++) {
		if (line[i] < '0' || line[i] > '9') {
			return false;
		}
	}
	for (int i = 0; i < level && i < 4; i++) {
		if (line[0] == severities[i]) {
			return true;
		}
	}
	return false;
}

/* Replaces the C library's fwrite in all libraries of the program. */
size_t fwrite(const void *data, size_t size, size_t count, FILE *stream) {
	static size_t (*libc)(const void *, size_t, size_t, FILE *);
	if (stream == stderr && unwanted(data, size * count)) {
		return count;
	}
	if (__atomic_load_n(&libc, __ATOMIC_RELAXED) == NULL) {
		__atomic_store_n(&libc, dlsym(RTLD_NEXT, "fwrite"), __ATOMIC_RELAXED);
	}
	return libc(data, size, count, stream);
}
