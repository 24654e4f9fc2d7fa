// The tasks, compiled for several instruction sets. One of them is chosen at run time.

#include <math.h>
#include <string.h>

#include "kernels.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are only passed between inlined functions
#pragma GCC optimize("no-math-errno")      // otherwise square roots are not vectorized

#define PASTE2(a, b) a##_##b
#define PASTE(a, b) PASTE2(a, b)
#define NAME(name) PASTE(name, ISA)
#define STRING2(x) #x
#define STRING(x) STRING2(x)

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

// MULTIPLY multiplies the low halves of 64-bit lanes. WIDEN makes numbers of 16 bits to such of 32. ROOT is
// the square root, rounded as sqrtf: the compiler makes no vector of calls of that.

#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#define ISA avx512
#define W 16
#define MULTIPLY(x, y) ((vw)_mm512_mul_epu32((__m512i)(x), (__m512i)(y)))
#define WIDEN(x) _mm512_cvtepu16_epi32((__m256i)(x))
#define ROOT(x) ((vf)_mm512_sqrt_ps((__m512)(x)))
#include "tasks.h"
#undef ISA
#undef W
#undef MULTIPLY
#undef WIDEN
#undef ROOT
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define ISA avx2
#define W 8
#define MULTIPLY(x, y) ((vw)_mm256_mul_epu32((__m256i)(x), (__m256i)(y)))
#define WIDEN(x) _mm256_cvtepu16_epi32((__m128i)(x))
#define ROOT(x) ((vf)_mm256_sqrt_ps((__m256)(x)))
#include "tasks.h"
#undef ISA
#undef W
#undef MULTIPLY
#undef WIDEN
#undef ROOT
#pragma GCC pop_options

#elif defined(__aarch64__)

#include <arm_neon.h>

#define ISA neon
#define W 4
#define MULTIPLY(x, y) ((vw)vmull_u32(vmovn_u64((uint64x2_t)(x)), vmovn_u64((uint64x2_t)(y))))
#define WIDEN(x) vmovl_u16((uint16x4_t)(x))
#define ROOT(x) ((vf)vsqrtq_f32((float32x4_t)(x)))
#include "tasks.h"
#undef ISA
#undef W
#undef MULTIPLY
#undef WIDEN
#undef ROOT

#endif

#define ISA generic
#define W 4
#define MULTIPLY(x, y) (((x) & 0xffffffffu) * (y))
#define WIDEN(x) __builtin_convertvector(x, vu)
#define ROOT(x) ((vf){sqrtf((x)[0]), sqrtf((x)[1]), sqrtf((x)[2]), sqrtf((x)[3])})
#include "tasks.h"

// The instruction sets of this processor, widest first.
static const Tasks* const* available(void) {
  static const Tasks* sets[4];
  int n = 0;
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    sets[n++] = &tasks_avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets[n++] = &tasks_avx2;
#elif defined(__aarch64__)
  sets[n++] = &tasks_neon;  // every such processor has it
#endif
  sets[n++] = &tasks_generic;
  return sets;
}

static const Tasks* chosen;

bool gorbit_use(const char* name) {
  const Tasks* const* set = available();
  while (*set != NULL && name[0] != '\0' && strcmp((*set)->name, name) != 0) set++;
  if (*set == NULL) return false;
  chosen = *set;
  return true;
}

const Tasks* gorbit_tasks(void) { return chosen; }
