// Memory whose pages are those of a file, for tensors that need not be in memory between two uses.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <search.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels.h"

// What is mapped, in a tree by its address.
typedef struct {
  void* memory;
  size_t bytes;
} Mapping;
static void* mappings;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // of mappings

static int compare(const void* a, const void* b) {
  uintptr_t x = (uintptr_t)((const Mapping*)a)->memory, y = (uintptr_t)((const Mapping*)b)->memory;
  return x < y ? -1 : x > y;
}

// create returns a new file without a name in a folder, so that it ends with the process, however that
// ends; -1, and errno, if that fails.
static int create(const char* folder) {
  int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0) return file;
  // Not all file systems have such files. What makes one with a name may end before it takes that away.
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s/.offload-XXXXXX", folder) >= (int)sizeof path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  file = mkostemp(path, O_CLOEXEC);
  if (file >= 0) unlink(path);
  return file;
}

static void* map(const char* folder, size_t bytes) {
  int file = create(folder);
  if (file < 0) return NULL;
  // A page that finds no place on the disk when it is written to would end the process.
  int failed;
  do {
    failed = posix_fallocate(file, 0, (off_t)bytes);
  } while (failed == EINTR);
  void* memory = MAP_FAILED;
  if (failed == 0) {
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    failed = errno;
  }
  close(file);
  if (memory == MAP_FAILED) {
    errno = failed;
    return NULL;
  }
  madvise(memory, bytes, MADV_SEQUENTIAL);
  return memory;
}

void* gorbit_map(const char* folder, size_t bytes) {
  Mapping* mapping = malloc(sizeof *mapping);
  if (mapping == NULL) return NULL;
  void* memory = map(folder, bytes);
  if (memory == NULL) {
    free(mapping);
    return NULL;
  }
  *mapping = (Mapping){memory, bytes};
  pthread_mutex_lock(&mutex);
  void* kept = tsearch(mapping, &mappings, compare);
  pthread_mutex_unlock(&mutex);
  if (kept == NULL) {
    munmap(memory, bytes);
    free(mapping);
    errno = ENOMEM;
    return NULL;
  }
  return memory;
}

// find returns what is mapped at an address. The mutex must be held.
static Mapping* find(const void* memory) {
  Mapping key = {.memory = (void*)memory};
  void* at = tfind(&key, &mappings, compare);
  return at == NULL ? NULL : *(Mapping**)at;
}

bool gorbit_is_mapped(const void* memory) {
  pthread_mutex_lock(&mutex);
  bool is = find(memory) != NULL;
  pthread_mutex_unlock(&mutex);
  return is;
}

void gorbit_unmap(void* memory, size_t bytes, void* unused) {
  (void)unused;
  pthread_mutex_lock(&mutex);
  Mapping* gone = find(memory);
  tdelete(gone, &mappings, compare);
  pthread_mutex_unlock(&mutex);
  free(gone);
  munmap(memory, bytes);
}

// Whether the advice is taken makes no difference to what the memory holds: dropped pages of a file are
// those of the file, changes included.
void gorbit_fetch(void* memory, size_t bytes) { madvise(memory, bytes, MADV_WILLNEED); }

void gorbit_drop(void* memory, size_t bytes) { madvise(memory, bytes, MADV_DONTNEED); }

static void drop(const void* node, VISIT order, int depth) {
  (void)depth;
  const Mapping* m = *(Mapping* const*)node;
  if (order == postorder || order == leaf) gorbit_drop(m->memory, m->bytes);
}

void gorbit_drop_all(void) {
  pthread_mutex_lock(&mutex);
  twalk(mappings, drop);
  pthread_mutex_unlock(&mutex);
}
