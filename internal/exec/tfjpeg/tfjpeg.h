#include <stdint.h>

enum { GORBIT_JPEG_WHOLE, GORBIT_JPEG_DOUBTFUL, GORBIT_JPEG_FAILED, GORBIT_JPEG_OTHER };

int gorbit_jpeg_open(void);
int gorbit_jpeg_decode(const void *file, int size, uint8_t *to, int width, int height, int components);
