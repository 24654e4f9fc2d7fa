#define _GNU_SOURCE
#include "tfjpeg.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"

/* tensorflow::jpeg::UncompressFlags of tensorflow/core/lib/jpeg/jpeg_mem.h, the same in all releases from
 * 2.18 to 2.21. */
struct flags {
	int ratio;
	int components;
	bool fancy_upscaling;
	bool try_recover_truncated_jpeg;
	float min_acceptable_fraction;
	int stride;
	int dct_method;
	bool crop;
	int crop_x, crop_y, crop_width, crop_height;
	int unused[16]; /* what another release may have besides, all 0 */
};

typedef uint8_t *uncompress(const void *file, int size, const struct flags *, int *width, int *height,
			    int *components, int64_t *warnings);

static uncompress *decode;
static void (*delete)(void *);

/* Finds TensorFlow's decoder in the libraries of the process. */
int gorbit_jpeg_open(void) {
	TF_Version(); /* so that the library is loaded, at its first call */
	/* uint8* tensorflow::jpeg::Uncompress(const void*, int, const UncompressFlags&, int*, int*, int*, int64_t*) */
	decode = (uncompress *)dlsym(RTLD_DEFAULT, "_ZN10tensorflow4jpeg10UncompressEPKviRKNS0_15UncompressFlagsEPiS6_S6_Pl");
	delete = (void (*)(void *))dlsym(RTLD_DEFAULT, "_ZdaPv"); /* operator delete[] */
	return decode != NULL && delete != NULL;
}

/* Decodes a file into height * width * components values. Returns a GORBIT_JPEG_ number. */
int gorbit_jpeg_decode(const void *file, int size, uint8_t *to, int width, int height, int components) {
	const struct flags flags = {.ratio = 1, .components = components, .fancy_upscaling = true,
		.min_acceptable_fraction = 1, .dct_method = 1 /* JDCT_IFAST, the default of decode_jpeg */};
	int w = 0, h = 0, c = 0;
	int64_t warnings = 0;
	uint8_t *values = decode(file, size, &flags, &w, &h, &c, &warnings);
	if (values == NULL) {
		return GORBIT_JPEG_FAILED;
	}
	int result = warnings > 0 ? GORBIT_JPEG_DOUBTFUL : GORBIT_JPEG_WHOLE;
	if (w == width && h == height && c == components) {
		memcpy(to, values, (size_t)width * (size_t)height * (size_t)components);
	} else {
		result = GORBIT_JPEG_OTHER;
	}
	delete(values);
	return result;
}
