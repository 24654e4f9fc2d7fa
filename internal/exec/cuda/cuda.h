#ifndef GORBIT_CUDA_H_
#define GORBIT_CUDA_H_

#include <stdbool.h>
#include <stddef.h>

typedef struct {
  char name[256];
  int major, minor, multiprocessors;
  size_t memory;
} gorbit_gpu;

bool gorbit_cuda_built(void);
int gorbit_cuda_runtime(void); // 12050 means 12.5, 0 means none
int gorbit_cuda_driver(void);
int gorbit_cuda_count(void);
bool gorbit_cuda_device(int i, gorbit_gpu* gpu);

#endif
