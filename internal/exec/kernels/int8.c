// Products of int8 numbers, compiled for several instruction sets. Sums of whole numbers are exact, so
// all give the same results.

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are only passed between inlined functions

#define PASTE2(a, b) a##_##b
#define PASTE(a, b) PASTE2(a, b)
#define NAME(name) PASTE(name, ISA)

// Below it, a row counts as zeros: the factor that makes its largest number 127 would be infinite.
static const float kLeastInt8 = 1e-30f;

// Panels of one task.
enum { kGroupPanels = 4 };

static inline int64_t int8_groups(int64_t panels) {
  return (panels + kGroupPanels - 1) / kGroupPanels;
}

int64_t gorbit_int8_count(const Int8* a) {
  return (a->rows + kInt8Rows - 1) / kInt8Rows * int8_groups(a->outputs / kPanelColumns);
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#include <cpuid.h>
#include <immintrin.h>

// Instructions that multiply four bytes take one factor without a sign: x + 128, whose share of the
// sum is 128 times the sum of the column.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,prefer-vector-width=512")
#define ISA avx512vnni
#define W 16
#define kRows 6
#define kPanels 4
#define kOffset (-128)
#define DOT(sum, x, w) (sum) = (vi)_mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(x), (__m512i)(w))
#include "int8.h"
#pragma GCC pop_options

// Others add pairs of products in 16 bits, which x + 128 would overflow: the sign of x goes to the
// other factor.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#define ISA avx512
#define W 16
#define kRows 6
#define kPanels 2
#define kOffset 0
#define DOT(sum, x, w)                                                                       \
  do {                                                                                       \
    __m512i signed_ = _mm512_mask_sub_epi8((__m512i)(w), _mm512_movepi8_mask((__m512i)(x)),  \
                                           _mm512_setzero_si512(), (__m512i)(w));            \
    __m512i pairs_ = _mm512_maddubs_epi16(_mm512_abs_epi8((__m512i)(x)), signed_);           \
    (sum) += (vi)_mm512_madd_epi16(pairs_, _mm512_set1_epi16(1));                            \
  } while (0)
#include "int8.h"
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,avxvnni")
#define ISA avxvnni
#define W 8
#define kRows 6
#define kPanels 1
#define kOffset (-128)
#define DOT(sum, x, w) (sum) = (vi)_mm256_dpbusd_avx_epi32((__m256i)(sum), (__m256i)(x), (__m256i)(w))
#include "int8.h"
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define ISA avx2
#define W 8
#define kRows 4
#define kPanels 1
#define kOffset 0
#define DOT(sum, x, w)                                                                \
  do {                                                                                \
    __m256i signed_ = _mm256_sign_epi8((__m256i)(w), (__m256i)(x));                   \
    __m256i pairs_ = _mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)(x)), signed_);    \
    (sum) += (vi)_mm256_madd_epi16(pairs_, _mm256_set1_epi16(1));                     \
  } while (0)
#include "int8.h"
#pragma GCC pop_options

#elif defined(__aarch64__)

#include <arm_neon.h>
#include <sys/auxv.h>

#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
#define ISA neondot
#define W 4
#define kRows 6
#define kPanels 1
#define kOffset 0
#define DOT(sum, x, w) (sum) = (vi)vdotq_s32((int32x4_t)(sum), (int8x16_t)(w), (int8x16_t)(x))
#include "int8.h"
#pragma GCC pop_options

#define ISA neon
#define W 4
#define kRows 4
#define kPanels 1
#define kOffset 0
#define DOT(sum, x, w)                                                                           \
  do {                                                                                           \
    int8x16_t x_ = (int8x16_t)(x), w_ = (int8x16_t)(w);                                          \
    int16x8_t pairs_ = vpaddq_s16(vmull_s8(vget_low_s8(w_), vget_low_s8(x_)), vmull_high_s8(w_, x_)); \
    (sum) = (vi)vpadalq_s16((int32x4_t)(sum), pairs_);                                           \
  } while (0)
#include "int8.h"

#endif

#define ISA generic
#define W 4
#define kRows 4
#define kPanels 1
#define kOffset 0
// Each of four shifts has the same byte of every column at the top of an int32.
#define DOT(sum, x, w)                                                                 \
  do {                                                                                 \
    for (int shift_ = 0; shift_ < 32; shift_ += 8) {                                   \
      (sum) += (((vi)(x) << (24 - shift_)) >> 24) * (((vi)(w) << (24 - shift_)) >> 24); \
    }                                                                                  \
  } while (0)
#include "int8.h"

#define TASKS(of, isa) {#of, #isa, steps_##isa, product_##isa}

// The tasks of each instruction set, those of its extension first.
static const Int8Tasks sets[] = {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    TASKS(avx512, avx512vnni), TASKS(avx512, avx512), TASKS(avx2, avxvnni), TASKS(avx2, avx2),
#elif defined(__aarch64__)
    TASKS(neon, neondot), TASKS(neon, neon),
#endif
    TASKS(generic, generic)};

static bool has(const char* extension) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  if (strcmp(extension, "avx512vnni") == 0) return __builtin_cpu_supports("avx512vnni");
  if (strcmp(extension, "avxvnni") == 0) {
    unsigned a, b, c, d;  // GCC 12 has no name for it
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1;
  }
#elif defined(__aarch64__)
  if (strcmp(extension, "neondot") == 0) return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#endif
  (void)extension;
  return true;
}

static atomic_bool without;  // extensions

void gorbit_int8_plain(bool plain) { atomic_store(&without, plain); }

const Int8Tasks* gorbit_int8(const char* instructions) {
  const Int8Tasks* last = &sets[0];
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
    if (strcmp(sets[i].of, instructions) != 0) continue;
    last = &sets[i];
    if (has(last->name) && !atomic_load(&without)) break;
  }
  return last;
}
