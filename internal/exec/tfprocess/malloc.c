#include <malloc.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

static bool kept;

/* Makes malloc keep freed memory instead of returning large blocks to the system, because a
 * training step would soon get them back, page by page. The memory kept grows with the number of
 * malloc's arenas, eight per core by default. Does nothing if the user has configured malloc. */
__attribute__((constructor)) static void keep(void) {
#ifdef __GLIBC__
	static const char *const said[] = {"MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_ARENA_MAX"};
	const char *tunables = getenv("GLIBC_TUNABLES");
	if (tunables != NULL && strstr(tunables, "glibc.malloc.") != NULL) {
		return;
	}
	for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
		if (getenv(said[i]) != NULL) {
			return;
		}
	}
	int cores = get_nprocs();
	kept = mallopt(M_MMAP_MAX, 0) && mallopt(M_TRIM_THRESHOLD, INT_MAX) && mallopt(M_TOP_PAD, 64 << 20) &&
		mallopt(M_ARENA_MAX, cores > 2 ? cores : 2);
#endif
}

/* Returns whether malloc keeps freed memory. */
bool gorbit_malloc_keeps(void) { return kept; }
