// Memory whose pages are those of a file, for tensors that need not be in memory between two uses.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels.h"

// What is mapped.
typedef struct Mapping {
  void* memory;
  size_t bytes;
  struct Mapping* next;
} Mapping;
static Mapping* mappings;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // of mappings

static void* map(const char* folder, size_t bytes) {
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s/.offload-XXXXXX", folder) >= (int)sizeof path) {
    errno = ENAMETOOLONG;
    return NULL;
  }
  int file = mkostemp(path, O_CLOEXEC);
  if (file < 0) return NULL;
  // Without a name, the file ends with the process, however that ends.
  unlink(path);
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
  pthread_mutex_lock(&mutex);
  *mapping = (Mapping){memory, bytes, mappings};
  mappings = mapping;
  pthread_mutex_unlock(&mutex);
  return memory;
}

void gorbit_unmap(void* memory, size_t bytes, void* unused) {
  (void)unused;
  pthread_mutex_lock(&mutex);
  Mapping** at = &mappings;
  while ((*at)->memory != memory) at = &(*at)->next;
  Mapping* gone = *at;
  *at = gone->next;
  pthread_mutex_unlock(&mutex);
  free(gone);
  munmap(memory, bytes);
}

// Whether the advice is taken makes no difference to what the memory holds: dropped pages of a file are
// those of the file, changes included.
void gorbit_fetch(void* memory, size_t bytes) { madvise(memory, bytes, MADV_WILLNEED); }

void gorbit_drop(void* memory, size_t bytes) { madvise(memory, bytes, MADV_DONTNEED); }

void gorbit_drop_all(void) {
  pthread_mutex_lock(&mutex);
  for (const Mapping* m = mappings; m != NULL; m = m->next) gorbit_drop(m->memory, m->bytes);
  pthread_mutex_unlock(&mutex);
}
