// The tasks of products of int8 numbers. This file is included once per instruction set, with W, NAME,
// kRows and kPanels of a tile, kOffset and DOT defined. DOT(sum, x, w) adds the products of four
// neighbouring bytes to each int32 of sum. x holds the same four numbers of a row everywhere, kOffset
// more than they are, and w four of each of W columns. The file takes these definitions away again, and
// that of ISA.

#include "vectors.h"

// OPAQUE keeps the compiler from joining a product and a sum, which rounds once instead of twice: the
// results are the same with all instruction sets.
#if defined(__x86_64__)
#define OPAQUE(v) __asm__("" : "+v"(v))
#elif defined(__aarch64__)
#define OPAQUE(v) __asm__("" : "+w"(v))
#else
#define OPAQUE(v) __asm__("" : "+m"(v))
#endif

// Rounds rows of x to whole numbers of steps, at most 127. A row with a number that is not finite gets
// such a step, and so such results.
static void NAME(steps)(void* argument, int64_t block) {
  typedef int8_t vb __attribute__((vector_size(W), aligned(1), may_alias));
  const Int8* a = argument;
  int64_t begin = block * kBlockRows, end = begin + kBlockRows, width = a->inputs;
  if (end > a->rows) end = a->rows;
  const vf magic = NAME(set)(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  for (int64_t row = begin; row < end; row++) {
    const float* x = a->x + row * width;
    int8_t* q = a->q + row * width;
    // Bits of positive numbers are ordered as the numbers are, with those that are none at the end.
    vi most = {};
    for (int64_t j = 0; j < width; j += W) {
      vi v = (vi)LOAD(x + j) & 0x7fffffff, more = v > most;
      most = (v & more) | (most & ~more);
    }
    int32_t bits = 0;
    for (int i = 0; i < W; i++) bits = most[i] > bits ? most[i] : bits;
    float largest;
    memcpy(&largest, &bits, 4);
    if (!(largest >= kLeastInt8 && largest <= FLT_MAX)) {
      for (int64_t j = 0; j < width; j++) q[j] = (int8_t)kOffset;
      a->step[row] = largest < kLeastInt8 ? 0 : NAN;
      continue;
    }
    a->step[row] = largest * (1 / 127.0f);
    float factor = 127.0f / largest;
    for (int64_t j = 0; j < width; j += W) {
      vf v = LOAD(x + j) * factor;
      OPAQUE(v);
      vi n = (vi)(v + magic) - (vi)magic;
      *(vb*)(q + j) = __builtin_convertvector(n ^ kOffset, vb);
    }
  }
}

// Computes some rows of some panels of 16 columns.
INLINE void NAME(tile)(const Int8* a, int64_t row, const int rows, int64_t panel,
                       const int panels) {
  enum { kParts = kPanelColumns / W };
  const int64_t stride = (a->inputs / 4 + kPanelRest) * kPanelBytes;
  const int8_t* w = a->w + panel * stride;
  const int8_t* q = a->q + row * a->inputs;
  vi sum[kRows][kPanels * kParts];
#pragma GCC unroll 32
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 32
    for (int p = 0; p < panels * kParts; p++) sum[r][p] = (vi){};
  }
  for (int64_t k = 0; k < a->inputs; k += 4) {
    vi column[kPanels * kParts];
#pragma GCC unroll 32
    for (int p = 0; p < panels * kParts; p++) {
      column[p] = *(const vi*)(w + p / kParts * stride + k * kPanelColumns + p % kParts * W * 4);
    }
#pragma GCC unroll 32
    for (int r = 0; r < rows; r++) {
      int32_t four;
      memcpy(&four, q + r * a->inputs + k, 4);
      vi x = (vi){} + four;
#pragma GCC unroll 32
      for (int p = 0; p < panels * kParts; p++) DOT(sum[r][p], x, column[p]);
    }
  }
#pragma GCC unroll 32
  for (int p = 0; p < panels * kParts; p++) {
    const int8_t* rest = w + p / kParts * stride + a->inputs * kPanelColumns + p % kParts * W * 4;
    vf scale = LOAD(rest), bias = {};
    vi total = *(const vi*)(rest + kPanelBytes);
    int64_t j = panel * kPanelColumns + p * W;
    if (a->bias) bias = LOAD(a->bias + j);
#pragma GCC unroll 32
    for (int r = 0; r < rows; r++) {
      vi s = sum[r][p] - (kOffset ? total << 7 : (vi){});
      vf y = __builtin_convertvector(s, vf) * (a->step[row + r] * scale);
      OPAQUE(y);
      if (a->bias) y += bias;
      vf unused;
      if (a->gelu) y *= NAME(phi)(y, &unused);
      STORE(a->y + (row + r) * a->outputs + j, y);
    }
  }
}

// Computes up to kRows rows of kPanels panels, or of one.
static void NAME(strip)(const Int8* a, int64_t row, int rows, int64_t panel, int panels) {
#define CASE(n)                                                     \
  case n:                                                           \
    if (n > kRows) __builtin_unreachable();                         \
    if (panels == 1) {                                              \
      NAME(tile)(a, row, n <= kRows ? n : 1, panel, 1);             \
    } else {                                                        \
      NAME(tile)(a, row, n <= kRows ? n : 1, panel, kPanels);       \
    }                                                               \
    break;
  switch (rows) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) }
#undef CASE
}

static void NAME(product)(void* argument, int64_t task) {
  const Int8* a = argument;
  int64_t panels = a->outputs / kPanelColumns, groups = int8_groups(panels);
  int64_t begin = task / groups * kInt8Rows, end = begin + kInt8Rows;
  if (end > a->rows) end = a->rows;
  int64_t first = task % groups * kGroupPanels, last = first + kGroupPanels;
  if (last > panels) last = panels;
  while (first < last) {
    int n = last - first < kPanels ? 1 : kPanels;
    for (int64_t row = begin; row < end; row += kRows) {
      NAME(strip)(a, row, (int)(end - row < kRows ? end - row : kRows), first, n);
    }
    first += n;
  }
}

#undef OPAQUE
#include "novectors.h"
#undef ISA
#undef W
#undef kRows
#undef kPanels
#undef kOffset
#undef DOT
