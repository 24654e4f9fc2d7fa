// The tasks. This file is included once per instruction set, with W and NAME defined.

#include "vectors.h"

// Returns number i of a tensor, which is bfloat16 if narrow.
INLINE float NAME(read)(const void* from, int64_t i, bool narrow) {
  if (!narrow) return ((const float*)from)[i];
  uint32_t bits = (uint32_t)((const uint16_t*)from)[i] << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// Sets number i of a tensor. Halves are rounded to even, as TensorFlow does.
INLINE void NAME(write)(void* to, int64_t i, float x, bool narrow) {
  if (!narrow) {
    ((float*)to)[i] = x;
    return;
  }
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  ((uint16_t*)to)[i] = (uint16_t)(x == x ? rounded : 0x7fc0);
}

// read_some is NAME(read) of the n numbers from i on, at most W, and write_some NAME(write) of them.
INLINE vf NAME(read_some)(const void* from, int64_t i, int64_t n, bool narrow) {
  if (!narrow) return NAME(some)((const float*)from + i, n);
  const uint16_t* p = (const uint16_t*)from + i;
  vh half = {};
  if (n == W) {
    half = *(const vh*)p;
  } else {
    memcpy(&half, p, (size_t)n * 2);
  }
  return (vf)((vu)WIDEN(half) << 16);
}

INLINE void NAME(write_some)(void* to, int64_t i, vf x, int64_t n, bool narrow) {
  if (!narrow) {
    NAME(keep)((float*)to + i, x, n);
    return;
  }
  vu bits = (vu)x, number = (vu)(x == x);
  bits = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  vh half = __builtin_convertvector((bits & number) | (0x7fc0u & ~number), vh);
  uint16_t* p = (uint16_t*)to + i;
  if (n == W) {
    *(vh*)p = half;
  } else {
    memcpy(p, &half, (size_t)n * 2);
  }
}

// An activation of x and its derivative. That of GELU is Phi(x) + x exp(-x^2 / 2) / sqrt(2 pi).
INLINE vf NAME(activation)(vf x, vf* derivative, const bool approximate) {
  if (!approximate) {
    vf e, p = NAME(phi)(x, &e);
    *derivative = p + x * e * 0.39894228f;
    return x * p;
  }
  // x times the sigmoid of 2 u, u being sqrt(2 / pi) (x + 0.044715 x^3): (1 + tanh(u)) / 2.
  vf square = x * x, u = 1.5957691f * x * (1.0f + 0.044715f * square);
  vf e = NAME(exp)(NAME(select)(u < 0.0f, u, -u)), s = 1.0f / (1.0f + e), low = e * s;
  vf p = NAME(select)(u < 0.0f, low, s), q = NAME(select)(u < 0.0f, s, low);
  *derivative = p + p * q * 1.5957691f * x * (1.0f + 0.134145f * square);
  return x * p;
}

INLINE void NAME(gelu_of)(const Gelu* g, int64_t block, const bool narrow, const bool approximate) {
  int64_t begin = block * kBlockRows * g->width, end = g->rows * g->width;
  if (end > begin + kBlockRows * g->width) end = begin + kBlockRows * g->width;
  vf unused;
  int64_t i = begin;
  for (; i + W <= end; i += W) {
    vf x = NAME(read_some)(g->x, i, W, narrow);
    NAME(write_some)(g->y, i, NAME(activation)(x, &unused, approximate), W, narrow);
  }
  if (i < end) {
    vf x = NAME(read_some)(g->x, i, end - i, narrow);
    NAME(write_some)(g->y, i, NAME(activation)(x, &unused, approximate), end - i, narrow);
  }
}

static void NAME(gelu)(void* argument, int64_t block) {
  const Gelu* g = argument;
  if (g->narrow) {
    NAME(gelu_of)(g, block, true, false);
  } else {
    NAME(gelu_of)(g, block, false, false);
  }
}

static void NAME(gelu_tanh)(void* argument, int64_t block) {
  const Gelu* g = argument;
  if (g->narrow) {
    NAME(gelu_of)(g, block, true, true);
  } else {
    NAME(gelu_of)(g, block, false, true);
  }
}

INLINE void NAME(gelu_gradient_of)(const Gelu* g, int64_t block, const bool narrow,
                                   const bool approximate) {
  int64_t begin = block * kBlockRows, end = begin + kBlockRows;
  if (end > g->rows) end = g->rows;
  float* sum = g->partial + block * g->width;
  memset(sum, 0, (size_t)g->width * 4);
  // y and dx may be in the memory of x and dy, if nobody else needs them.
  for (int64_t row = begin; row < end; row++) {
    int64_t at = row * g->width, j = 0;
    vf derivative;
    for (; j + W <= g->width; j += W) {
      vf y = NAME(activation)(NAME(read_some)(g->x, at + j, W, narrow), &derivative, approximate);
      vf d = NAME(read_some)(g->dy, at + j, W, narrow) * derivative;
      NAME(write_some)(g->y, at + j, y, W, narrow);
      NAME(write_some)(g->dx, at + j, d, W, narrow);
      STORE(sum + j, LOAD(sum + j) + d);
    }
    if (j < g->width) {
      int64_t n = g->width - j;
      vf y = NAME(activation)(NAME(read_some)(g->x, at + j, n, narrow), &derivative, approximate);
      vf d = NAME(read_some)(g->dy, at + j, n, narrow) * derivative;
      NAME(write_some)(g->y, at + j, y, n, narrow);
      NAME(write_some)(g->dx, at + j, d, n, narrow);
      for (int64_t k = 0; k < n; k++) sum[j + k] += d[k];
    }
  }
}

static void NAME(gelu_gradient)(void* argument, int64_t block) {
  const Gelu* g = argument;
  if (g->narrow) {
    NAME(gelu_gradient_of)(g, block, true, false);
  } else {
    NAME(gelu_gradient_of)(g, block, false, false);
  }
}

static void NAME(gelu_tanh_gradient)(void* argument, int64_t block) {
  const Gelu* g = argument;
  if (g->narrow) {
    NAME(gelu_gradient_of)(g, block, true, true);
  } else {
    NAME(gelu_gradient_of)(g, block, false, true);
  }
}

// Philox 4x32-10 for W blocks of a stream (Salmon et al. 2011): eight numbers of 16 bits each.
// A word is the low half of a 64-bit lane; the high half is undefined.
INLINE void NAME(philox)(const Dropout* d, const uint64_t* block, uint64_t* out) {
#pragma GCC unroll 2
  for (int i = 0; i < W; i += W / 2) {
    vw low = *(const vw*)(block + i) + d->low, high = d->high - (vw)(low < d->low);
    vw x0 = low, x1 = low >> 32, x2 = high, x3 = high >> 32;
    uint32_t k0 = (uint32_t)d->key, k1 = (uint32_t)(d->key >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
      vw p0 = MULTIPLY(x0, (vw){} + 0xD2511F53u), p1 = MULTIPLY(x2, (vw){} + 0xCD9E8D57u);
      x0 = (p1 >> 32) ^ x1 ^ k0;
      x2 = (p0 >> 32) ^ x3 ^ k1;
      x1 = p1, x3 = p0;
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    vw first = (x0 & 0xffffffffu) | x1 << 32, second = (x2 & 0xffffffffu) | x3 << 32;
    for (int j = 0; j < W / 2; j++) {
      out[2 * (i + j)] = first[j];
      out[2 * (i + j) + 1] = second[j];
    }
  }
}

// Memory for the random numbers of rows of n elements, in units of 64 bits.
INLINE int64_t NAME(drawn)(int64_t rows, int64_t n) { return 2 * (rows * (n / 8 + 2) + W); }

// Draws the random numbers of elements first to first + n - 1 of a stream, and for every further
// row those stride elements later. It draws the whole 128-bit blocks that hold them, row by row.
INLINE void NAME(draw)(const Dropout* d, int64_t first, int64_t n, int64_t rows, int64_t stride,
                       uint64_t* out) {
  uint64_t block[W];
  int count = 0;
  for (int64_t row = 0; row < rows; row++, first += stride) {
    for (int64_t b = first / 8; b <= (first + n - 1) / 8; b++) {
      block[count++] = (uint64_t)b;
      if (count < W) continue;
      NAME(philox)(d, block, out);
      out += 2 * W;
      count = 0;
    }
  }
  if (count == 0) return;
  while (count < W) block[count++] = 0;
  NAME(philox)(d, block, out);
}

// The factor of dropout for W neighbouring elements: 0, or kept.
INLINE vf NAME(mask)(const Dropout* d, const int16_t* number, float kept) {
  typedef int16_t vs __attribute__((vector_size(W * 2), aligned(2), may_alias));
  vi n = __builtin_convertvector(*(const vs*)number, vi);
  return (vf)((n >= d->threshold) & (vi)NAME(set)(kept));
}

INLINE void NAME(norm_of)(Norm* a, int64_t block, bool narrow) {
  int64_t begin = block * kBlockRows, end = begin + kBlockRows, width = a->width;
  if (end > a->rows) end = a->rows;
  int64_t padded = (width + W - 1) / W * W;
  // The row and its random numbers.
  float* x = gorbit_scratch(padded + 2 * NAME(drawn)(1, width));
  if (x == NULL) {
    a->failed = true;
    return;
  }
  uint64_t* random = (uint64_t*)(x + padded);
  const int16_t* numbers = (const int16_t*)random;
  for (int64_t row = begin; row < end; row++) {
    int64_t at = row * width, j = 0;
    if (a->dropout.on) {
      NAME(draw)(&a->dropout, at, width, 1, 0, random);
      numbers = (const int16_t*)random + at % 8;
    }
    vf sum = {};
    for (; j + W <= width; j += W) {
      vf v = NAME(read_some)(a->x, at + j, W, narrow);
      if (a->dropout.on) v *= NAME(mask)(&a->dropout, numbers + j, a->dropout.factor);
      v += LOAD(a->residual + at + j);
      STORE(x + j, v);
      sum += v;
    }
    float mean = NAME(sum)(sum);
    for (; j < width; j++) {
      float v = NAME(read)(a->x, at + j, narrow);
      if (a->dropout.on) v *= numbers[j] >= a->dropout.threshold ? a->dropout.factor : 0;
      x[j] = v + a->residual[at + j];
      mean += x[j];
    }
    mean /= (float)width;
    vf squares = {};
    for (j = 0; j + W <= width; j += W) {
      vf v = LOAD(x + j) - mean;
      STORE(x + j, v);
      squares += v * v;
    }
    float variance = NAME(sum)(squares);
    for (; j < width; j++) {
      x[j] -= mean;
      variance += x[j] * x[j];
    }
    float reciprocal = 1.0f / sqrtf(variance / (float)width + a->epsilon);
    if (a->reciprocal) a->reciprocal[row] = reciprocal;
    for (j = 0; j + W <= width; j += W) {
      vf n = LOAD(x + j) * reciprocal;
      if (a->normalized) STORE(a->normalized + at + j, n);
      STORE(a->y + at + j, n * LOAD(a->scale + j) + LOAD(a->offset + j));
    }
    for (; j < width; j++) {
      float n = x[j] * reciprocal;
      if (a->normalized) a->normalized[at + j] = n;
      a->y[at + j] = n * a->scale[j] + a->offset[j];
    }
  }
}

static void NAME(norm)(void* argument, int64_t block) {
  Norm* a = argument;
  if (a->narrow) {
    NAME(norm_of)(a, block, true);
  } else {
    NAME(norm_of)(a, block, false);
  }
}

INLINE void NAME(norm_gradient_of)(Norm* a, int64_t block, bool narrow) {
  int64_t begin = block * kBlockRows, end = begin + kBlockRows, width = a->width;
  if (end > a->rows) end = a->rows;
  float *bias = a->partial + block * 3 * width, *scale = bias + width, *offset = scale + width;
  memset(bias, 0, (size_t)width * 12);
  uint64_t* random = (uint64_t*)gorbit_scratch(2 * NAME(drawn)(1, width));
  if (random == NULL) {
    a->failed = true;
    return;
  }
  const int16_t* numbers = (const int16_t*)random;
  for (int64_t row = begin; row < end; row++) {
    int64_t at = row * width, j = 0;
    if (a->dropout.on) {
      NAME(draw)(&a->dropout, at, width, 1, 0, random);
      numbers = (const int16_t*)random + at % 8;
    }
    const float *dy = a->dy + at, *normalized = a->normalized + at;
    float* dresidual = a->dresidual + at;
    vf s1 = {}, s2 = {};
    for (; j + W <= width; j += W) {
      vf d = LOAD(dy + j), n = LOAD(normalized + j), g = d * LOAD(a->scale + j);
      s1 += g;
      s2 += g * n;
      STORE(offset + j, LOAD(offset + j) + d);
      STORE(scale + j, LOAD(scale + j) + d * n);
    }
    float m1 = NAME(sum)(s1), m2 = NAME(sum)(s2);
    for (; j < width; j++) {
      float g = dy[j] * a->scale[j];
      m1 += g;
      m2 += g * normalized[j];
      offset[j] += dy[j];
      scale[j] += dy[j] * normalized[j];
    }
    m1 /= (float)width;
    m2 /= (float)width;
    float reciprocal = a->reciprocal[row];
    for (j = 0; j + W <= width; j += W) {
      vf g = LOAD(dy + j) * LOAD(a->scale + j);
      vf d = reciprocal * (g - m1 - LOAD(normalized + j) * m2), x = d;
      STORE(dresidual + j, d);
      if (a->dropout.on) x *= NAME(mask)(&a->dropout, numbers + j, a->dropout.factor);
      NAME(write_some)(a->dx, at + j, x, W, narrow);
      STORE(bias + j, LOAD(bias + j) + x);
    }
    for (; j < width; j++) {
      float g = dy[j] * a->scale[j];
      float d = reciprocal * (g - m1 - normalized[j] * m2), x = d;
      dresidual[j] = d;
      if (a->dropout.on) x *= numbers[j] >= a->dropout.threshold ? a->dropout.factor : 0;
      NAME(write)(a->dx, at + j, x, narrow);
      bias[j] += x;
    }
  }
}

static void NAME(norm_gradient)(void* argument, int64_t block) {
  Norm* a = argument;
  if (a->narrow) {
    NAME(norm_gradient_of)(a, block, true);
  } else {
    NAME(norm_gradient_of)(a, block, false);
  }
}

static void NAME(scale_norm)(void* argument, int64_t block) {
  const ScaleNorm* a = argument;
  int64_t begin = block * kBlockRows, end = begin + kBlockRows, width = a->width;
  if (end > a->rows) end = a->rows;
  for (int64_t row = begin; row < end; row++) {
    const float* x = a->x + row * width;
    float* y = a->y + row * width;
    vf sums = {}, squares = {};
    int64_t j = 0;
    for (; j + W <= width; j += W) sums += LOAD(x + j);
    float mean = NAME(sum)(sums);
    for (; j < width; j++) mean += x[j];
    mean /= (float)width;
    for (j = 0; j + W <= width; j += W) {
      vf v = LOAD(x + j) - mean;
      squares += v * v;
    }
    float variance = NAME(sum)(squares);
    for (; j < width; j++) variance += (x[j] - mean) * (x[j] - mean);
    float reciprocal = 1.0f / sqrtf(variance / (float)width + a->epsilon);
    if (a->mean != NULL) a->mean[row] = mean, a->reciprocal[row] = reciprocal;
    for (j = 0; j + W <= width; j += W) {
      STORE(y + j, (LOAD(x + j) - mean) * reciprocal * LOAD(a->scale + j));
    }
    for (; j < width; j++) y[j] = (x[j] - mean) * reciprocal * a->scale[j];
    for (j = 0; a->offset != NULL && j < width; j++) y[j] += a->offset[j];
  }
}

static void NAME(scale_norm_gradient)(void* argument, int64_t block) {
  const ScaleNorm* a = argument;
  int64_t begin = block * kBlockRows, end = begin + kBlockRows, width = a->width;
  if (end > a->rows) end = a->rows;
  float* scale = a->partial + block * width;
  memset(scale, 0, (size_t)width * 4);
  for (int64_t row = begin; row < end; row++) {
    const float *x = a->x + row * width, *dy = a->dy + row * width;
    float *dx = a->dx + row * width, mean = a->mean[row], reciprocal = a->reciprocal[row];
    vf s1 = {}, s2 = {};
    int64_t j = 0;
    for (; j + W <= width; j += W) {
      vf d = LOAD(dy + j), n = (LOAD(x + j) - mean) * reciprocal, g = d * LOAD(a->scale + j);
      s1 += g;
      s2 += g * n;
      STORE(scale + j, LOAD(scale + j) + d * n);
    }
    float m1 = NAME(sum)(s1), m2 = NAME(sum)(s2);
    for (; j < width; j++) {
      float n = (x[j] - mean) * reciprocal, g = dy[j] * a->scale[j];
      m1 += g;
      m2 += g * n;
      scale[j] += dy[j] * n;
    }
    m1 /= (float)width;
    m2 /= (float)width;
    for (j = 0; j + W <= width; j += W) {
      vf n = (LOAD(x + j) - mean) * reciprocal;
      STORE(dx + j, reciprocal * (LOAD(dy + j) * LOAD(a->scale + j) - m1 - n * m2));
    }
    for (; j < width; j++) {
      float n = (x[j] - mean) * reciprocal;
      dx[j] = reciprocal * (dy[j] * a->scale[j] - m1 - n * m2);
    }
  }
}

// Cross entropies of softmaxes and their gradient. Rows of weight 0 may hold anything.
static void NAME(token_losses)(void* argument, int64_t block) {
  const TokenLosses* a = argument;
  int64_t begin = block * kBlockRows, end = begin + kBlockRows, width = a->width;
  if (end > a->rows) end = a->rows;
  float spread = a->smoothing / (float)width, kept = 1 - a->smoothing;
  for (int64_t row = begin; row < end; row++) {
    const float* x = a->logits + row * width;
    float *y = a->dlogits + row * width, weight = a->weights[row];
    a->losses[row] = a->right[row] = 0;
    if (weight == 0) {
      memset(y, 0, (size_t)width * 4);
      continue;
    }
    int64_t label = a->labels[row];
    vf top = NAME(set)(x[0]), sum = {}, powers = {};
    for (int64_t j = 0; j < width; j += W) {
      int64_t n = width - j < W ? width - j : W;
      vf v = NAME(set)(x[0]);
      memcpy(&v, x + j, (size_t)n * 4);
      top = NAME(select)(top > v, top, v);
      sum += NAME(some)(x + j, n);
    }
    float most = top[0], own = x[label];
    for (int k = 1; k < W; k++) most = top[k] > most ? top[k] : most;
    bool first = own == most;
    for (int64_t j = 0; j < label && first; j++) first = x[j] != most;
    for (int64_t j = 0; j < width; j += W) {
      int64_t n = width - j < W ? width - j : W;
      vf v = NAME(set)(-INFINITY);
      memcpy(&v, x + j, (size_t)n * 4);
      v = NAME(exp)(v - most);
      powers += v;
      NAME(keep)(y + j, v, n);
    }
    float all = NAME(sum)(powers), share = weight / all;
    float spent = a->smoothing * most - spread * NAME(sum)(sum);
    a->losses[row] = weight * (logf(all) + kept * (most - own) + spent);
    a->right[row] = first ? weight : 0;
    for (int64_t j = 0; j < width; j += W) {
      int64_t n = width - j < W ? width - j : W;
      NAME(keep)(y + j, NAME(some)(y + j, n) * share - weight * spread, n);
    }
    y[label] -= weight * kept;
  }
}

// Without a residual: dropout alone, which is its own gradient.
static void NAME(residual)(void* argument, int64_t block) {
  Residual* a = argument;
  int64_t begin = block * kBlockRows, end = begin + kBlockRows, width = a->width;
  if (end > a->rows) end = a->rows;
  uint64_t* random = (uint64_t*)gorbit_scratch(2 * NAME(drawn)(1, width));
  if (random == NULL) {
    a->failed = true;
    return;
  }
  const int16_t* numbers = (const int16_t*)random;
  for (int64_t row = begin; row < end; row++) {
    int64_t at = row * width;
    if (a->dropout.on) {
      NAME(draw)(&a->dropout, at, width, 1, 0, random);
      numbers = (const int16_t*)random + at % 8;
    }
    for (int64_t j = 0; j < width; j += W) {
      int64_t n = width - j < W ? width - j : W;
      vf v = NAME(some)(a->x + at + j, n);
      if (a->dropout.on) v *= NAME(mask)(&a->dropout, numbers + j, a->dropout.factor);
      if (a->residual) v += NAME(some)(a->residual + at + j, n);
      NAME(keep)(a->y + at + j, v, n);
    }
  }
}

static void NAME(geglu)(void* argument, int64_t block) {
  Geglu* a = argument;
  int64_t begin = block * kBlockRows, end = begin + kBlockRows, width = a->width;
  if (end > a->rows) end = a->rows;
  uint64_t* random = (uint64_t*)gorbit_scratch(2 * NAME(drawn)(1, width));
  if (random == NULL) {
    a->failed = true;
    return;
  }
  const int16_t* numbers = (const int16_t*)random;
  for (int64_t row = begin; row < end; row++) {
    const float *x = a->x + row * 2 * width, *gate = x + width;
    float* y = a->y + row * width;
    if (a->dropout.on) {
      NAME(draw)(&a->dropout, row * width, width, 1, 0, random);
      numbers = (const int16_t*)random + row * width % 8;
    }
    for (int64_t j = 0; j < width; j += W) {
      int64_t n = width - j < W ? width - j : W;
      vf e, v = NAME(some)(x + j, n);
      v *= NAME(phi)(v, &e) * NAME(some)(gate + j, n);
      if (a->dropout.on) v *= NAME(mask)(&a->dropout, numbers + j, a->dropout.factor);
      NAME(keep)(y + j, v, n);
    }
  }
}

static void NAME(geglu_gradient)(void* argument, int64_t block) {
  Geglu* a = argument;
  int64_t begin = block * kBlockRows, end = begin + kBlockRows, width = a->width;
  if (end > a->rows) end = a->rows;
  uint64_t* random = (uint64_t*)gorbit_scratch(2 * NAME(drawn)(1, width));
  if (random == NULL) {
    a->failed = true;
    return;
  }
  const int16_t* numbers = (const int16_t*)random;
  for (int64_t row = begin; row < end; row++) {
    const float *x = a->x + row * 2 * width, *dy = a->dy + row * width;
    // In the memory of x and dy, if nobody else needs them.
    float *y = a->y + row * width, *dx = a->dx + row * 2 * width;
    if (a->dropout.on) {
      NAME(draw)(&a->dropout, row * width, width, 1, 0, random);
      numbers = (const int16_t*)random + row * width % 8;
    }
    for (int64_t j = 0; j < width; j += W) {
      int64_t n = width - j < W ? width - j : W;
      vf e, v = NAME(some)(x + j, n), gate = NAME(some)(x + width + j, n);
      vf p = NAME(phi)(v, &e), d = NAME(some)(dy + j, n), value = v * p;
      vf product = value * gate;
      if (a->dropout.on) {
        vf kept = NAME(mask)(&a->dropout, numbers + j, a->dropout.factor);
        d *= kept;
        product *= kept;
      }
      NAME(keep)(y + j, product, n);
      NAME(keep)(dx + j, d * gate * (p + v * e * 0.39894228f), n);
      NAME(keep)(dx + width + j, d * value, n);
    }
  }
}

static void NAME(rotary)(void* argument, int64_t block) {
  const Rotary* a = argument;
  int64_t begin = block * kBlockRows, end = begin + kBlockRows, half = a->half;
  if (end > a->rows) end = a->rows;
  for (int64_t row = begin; row < end; row++) {
    const float *x = a->x + row * a->width, *c = a->cosines + row * half, *s = a->sines + row * half;
    float* y = a->y + row * a->width;
    for (int64_t head = 0; head < a->heads; head++, x += 2 * half, y += 2 * half) {
      for (int64_t j = 0; j < half; j += W) {
        int64_t n = half - j < W ? half - j : W;
        vf p = NAME(some)(x + j, n), q = NAME(some)(x + half + j, n);
        vf cosine = NAME(some)(c + j, n), sine = NAME(some)(s + j, n);
        NAME(keep)(y + j, p * cosine - q * sine, n);
        NAME(keep)(y + half + j, q * cosine + p * sine, n);
      }
    }
    int64_t rest = a->width - a->heads * 2 * half;
    if (x != y) memcpy(y, x, (size_t)rest * 4);
  }
}

// One tile of a product: m x n vectors of c, n at most 2.
INLINE void NAME(tile)(float* c, int64_t ldc, const float* a, int64_t am, int64_t ak, const float* b,
                       int64_t ldb, int64_t inner, const int m, const int n, bool add) {
  vf sum[6][2] = {};
  for (int64_t k = 0; k < inner; k++) {
    vf b0 = LOAD(b + k * ldb), b1 = n > 1 ? LOAD(b + k * ldb + W) : b0;
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
      vf x = NAME(set)(a[i * am + k * ak]);
      sum[i][0] += x * b0;
      if (n > 1) sum[i][1] += x * b1;
    }
  }
  if (add) {
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
      sum[i][0] += LOAD(c + i * ldc);
      if (n > 1) sum[i][1] += LOAD(c + i * ldc + W);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < m; i++) {
    STORE(c + i * ldc, sum[i][0]);
    if (n > 1) STORE(c + i * ldc + W, sum[i][1]);
  }
}

// c[m, n] = a[m, k] b[k, n], and c + that with add. Element (i, k) of a is at i * am + k * ak, so a
// may be transposed; n is a multiple of W. The matrices of attention fit into the caches next to the
// core, so they are not packed.
static void NAME(product)(float* c, int64_t ldc, const float* a, int64_t am, int64_t ak,
                          const float* b, int64_t ldb, int64_t m, int64_t n, int64_t k, bool add) {
  for (int64_t j = 0; j < n; j += 2 * W) {
    int64_t i = 0;
    bool two = j + 2 * W <= n;
    for (; i + 6 <= m; i += 6) {
      if (two) {
        NAME(tile)(c + i * ldc + j, ldc, a + i * am, am, ak, b + j, ldb, k, 6, 2, add);
      } else {
        NAME(tile)(c + i * ldc + j, ldc, a + i * am, am, ak, b + j, ldb, k, 6, 1, add);
      }
    }
    switch (m - i) {
#define REST(rows)                                                                   \
  case rows:                                                                         \
    if (two) {                                                                       \
      NAME(tile)(c + i * ldc + j, ldc, a + i * am, am, ak, b + j, ldb, k, rows, 2, add); \
    } else {                                                                         \
      NAME(tile)(c + i * ldc + j, ldc, a + i * am, am, ak, b + j, ldb, k, rows, 1, add); \
    }                                                                                \
    break;
      REST(1)
      REST(2)
      REST(3)
      REST(4)
      REST(5)
#undef REST
    }
  }
}

// A task of attention, one head of one run, and its matrices. n is the length of the run and d the
// width of a head; dp is this rounded up to whole vectors, and columns the length of the rows of
// transposed matrices. Queries first to last - 1 of the run are computed together, as all of their
// pairs with keys low to low + m - 1, mp being m rounded up. q and o hold these queries' rows, kt and
// vt these keys' columns, and k, v and dk the rows of all keys up to ready - 1.
typedef struct {
  const Run* run;
  int64_t head, token;  // token: the first of the run, in the flat rows
  int64_t n, d, dp, columns;
  int64_t first, last, low, m, mp, ready;
  float *q, *k, *v, *kt, *vt, *o, *dk, *weights, *scores;
  uint64_t* random;   // of kDrawnRows rows of weights
  const int16_t* numbers[kDrawnRows];
} NAME(Room);

static bool NAME(room)(NAME(Room) * r, const Attention* a, int64_t task) {
  memset(r, 0, sizeof *r);
  r->run = a->run + task / a->heads, r->head = task % a->heads;
  r->token = r->run->row * a->row_length + r->run->column;
  int64_t n = r->n = r->run->length, d = r->d = a->width / a->heads;
  int64_t dp = r->dp = (d + W - 1) / W * W;
  int64_t most = n < kQueries ? n : kQueries, wide = n;
  if (a->window > 0) {
    most = n < a->window ? n : a->window;
    wide = n < 3 * a->window ? n : 3 * a->window;
  }
  wide = (wide + W - 1) / W * W;
  // An odd number of vectors, so that what stands below each other does not fall into the same lines
  // of the caches.
  r->columns = (wide / W | 1) * W;
  int64_t columns = d * r->columns, square = most * wide;
  float* p = gorbit_scratch((2 * most + 3 * n) * dp + 2 * columns + 2 * square +
                            2 * NAME(drawn)(kDrawnRows, wide));
  if (p == NULL) return false;
  r->q = p, r->o = r->q + most * dp;
  r->k = r->o + most * dp, r->v = r->k + n * dp, r->dk = r->v + n * dp;
  r->kt = r->dk + n * dp, r->vt = r->kt + columns;
  r->weights = r->vt + columns, r->scores = r->weights + square;
  r->random = (uint64_t*)(r->scores + square);
  return true;
}

// Copies a run's part of a head from rows with a stride, the first of which begins at number `at`.
INLINE void NAME(take)(float* to, int64_t dp, const void* from, int64_t at, int64_t stride, int64_t n,
                       int64_t d, float factor, bool narrow) {
  for (int64_t i = 0; i < n; i++, at += stride) {
    for (int64_t j = 0; j < d; j++) to[i * dp + j] = NAME(read)(from, at + j, narrow) * factor;
    for (int64_t j = d; j < dp; j++) to[i * dp + j] = 0;
  }
}

INLINE void NAME(transpose)(float* to, int64_t columns, const float* from, int64_t dp, int64_t n,
                            int64_t d) {
  // In parts that stay in the nearest cache.
  for (int64_t begin = 0; begin < n; begin += 4 * W) {
    int64_t end = begin + 4 * W < n ? begin + 4 * W : n;
    for (int64_t j = 0; j < d; j++) {
      for (int64_t i = begin; i < end; i++) to[j * columns + i] = from[i * dp + j];
    }
  }
}

// Goes to the next queries, and copies what they need; false after the last. With a window they are
// those of a block of as many positions of the row, and the keys those of the block and its two
// neighbours; if causal, keys are those up to the last query. For the gradient v becomes 0, as dk:
// theirs is added up there.
INLINE bool NAME(next)(const Attention* a, NAME(Room) * r, bool gradient) {
  if (r->last == r->n) return false;
  int64_t end = r->n, w = a->window, before = r->low, d = r->d, dp = r->dp, h = a->width;
  r->first = r->last, r->last = r->first + kQueries;
  if (w > 0) {
    int64_t begin = (r->run->column + r->first) / w * w - r->run->column;
    r->last = begin + w, r->low = begin > w ? begin - w : 0;
    if (end > begin + 2 * w) end = begin + 2 * w;
  }
  if (r->last > r->n) r->last = r->n;
  if (a->causal) end = r->last;
  r->m = end - r->low;
  r->mp = (r->m + W - 1) / W * W;

  int64_t row = 3 * h, query = r->token * row + r->head * d;
  NAME(take)(r->q, dp, a->qkv, query + r->first * row, row, r->last - r->first, d,
             1.0f / sqrtf((float)d), a->narrow);
  int64_t old = r->ready, fresh = end - old, kept = old - r->low, rows = old * dp;
  for (int64_t j = 0; j < d && r->low > before; j++) {
    float *kt = r->kt + j * r->columns, *vt = r->vt + j * r->columns;
    memmove(kt, kt + r->low - before, (size_t)kept * 4);
    if (gradient) memmove(vt, vt + r->low - before, (size_t)kept * 4);
  }
  if (fresh == 0) return true;
  r->ready = end;
  int64_t key = query + old * row + h;
  NAME(take)(r->k + rows, dp, a->qkv, key, row, fresh, d, 1.0f, a->narrow);
  NAME(take)(r->v + rows, dp, a->qkv, key + h, row, fresh, d, 1.0f, a->narrow);
  NAME(transpose)(r->kt + kept, r->columns, r->k + rows, dp, fresh, d);
  if (!gradient) return true;
  NAME(transpose)(r->vt + kept, r->columns, r->v + rows, dp, fresh, d);
  memset(r->v + rows, 0, (size_t)(fresh * dp) * 4);
  memset(r->dk + rows, 0, (size_t)(fresh * dp) * 4);
  return true;
}

// Returns the random numbers of query i's weights, from the first key on. Queries must be requested
// in order. Several rows are drawn at once, so that short rows use all lanes.
INLINE const int16_t* NAME(numbers)(const Attention* a, NAME(Room) * r, int64_t i) {
  int64_t at_row = (i - r->first) % kDrawnRows;
  if (at_row == 0) {
    int64_t s = a->row_length, w = a->window, position = r->run->column + i;
    int64_t rows = r->last - i, head = r->run->row * a->heads + r->head, stride = s;
    if (rows > kDrawnRows) rows = kDrawnRows;
    int64_t first = (head * s + position) * s + r->run->column + r->low;
    if (w > 0) {
      int64_t block = position / w, blocks = (s + w - 1) / w;
      stride = 3 * w;
      first = (head * blocks * w + position) * stride + r->run->column + r->low - (block - 1) * w;
    }
    NAME(draw)(&a->dropout, first, r->m, rows, stride, r->random);
    const int16_t* at = (const int16_t*)r->random;
    for (int64_t row = 0; row < rows; row++, first += stride) {
      r->numbers[row] = at + first % 8;
      at += 8 * ((first + r->m - 1) / 8 - first / 8 + 1);
    }
  }
  return r->numbers[at_row];
}

// Computes the scores of the pairs. That of a pair of different sequences, or too far apart, is so
// low that its exponential is 0.
static void NAME(score)(const Attention* a, const NAME(Room) * r, float* scores) {
  int64_t w = a->window;
  NAME(product)(scores, r->mp, r->q, r->dp, 1, r->kt, r->columns, r->last - r->first, r->mp, r->d,
                false);
  const int32_t* ids = r->run->ids;
  for (int64_t i = r->first; i < r->last; i++, scores += r->mp) {
    for (int64_t j = 0; ids != NULL && j < r->m; j++) {
      if (ids[r->low + j] != ids[i]) scores[j] = -1e9f;
    }
    int64_t end = r->m;
    if (w > 0) {
      for (int64_t j = 0; j < i - w - r->low; j++) scores[j] = -INFINITY;
      if (end > i + w + 1 - r->low) end = i + w + 1 - r->low;
    }
    if (a->causal) end = i + 1 - r->low;
    for (int64_t j = end; j < r->mp; j++) scores[j] = -INFINITY;
  }
}

static void NAME(attention)(void* argument, int64_t task) {
  Attention* a = argument;
  NAME(Room) r;
  if (!NAME(room)(&r, a, task)) {
    a->failed = true;
    return;
  }
  int64_t d = r.d, h = a->width, head = r.head, token = r.token;
  while (NAME(next)(a, &r, false)) {
    NAME(score)(a, &r, r.scores);
    for (int64_t i = r.first; i < r.last; i++) {
      float* s = r.scores + (i - r.first) * r.mp;
      vf top = LOAD(s);
      for (int64_t j = W; j < r.mp; j += W) {
        vf x = LOAD(s + j);
        top = NAME(select)(top > x, top, x);
      }
      float most = top[0];
      for (int j = 1; j < W; j++) most = top[j] > most ? top[j] : most;
      vf sum = {};
      for (int64_t j = 0; j < r.mp; j += W) {
        vf e = NAME(exp)(LOAD(s + j) - most);
        STORE(s + j, e);
        sum += e;
      }
      float share = 1.0f / NAME(sum)(sum);
      for (int64_t j = 0; j < r.mp; j += W) STORE(s + j, LOAD(s + j) * share);
      if (a->save) {
        float* save = a->save + ((token + i) * a->heads + head) * 2;
        save[0] = most, save[1] = share;
      }
      if (!a->dropout.on) continue;
      const int16_t* numbers = NAME(numbers)(a, &r, i);
      for (int64_t j = 0; j < r.mp; j += W) {
        STORE(s + j, LOAD(s + j) * NAME(mask)(&a->dropout, numbers + j, 1.0f));
      }
    }
    NAME(product)(r.o, r.dp, r.scores, r.mp, 1, r.v + r.low * r.dp, r.dp, r.last - r.first, r.dp,
                  r.m, false);
    float factor = a->dropout.on ? a->dropout.factor : 1.0f;
    for (int64_t i = r.first; i < r.last; i++) {
      int64_t at = (token + i) * h + head * d;
      for (int64_t j = 0; j < d; j++) {
        NAME(write)(a->y, at + j, r.o[(i - r.first) * r.dp + j] * factor, a->narrow);
      }
    }
  }
}

// Writes n rows of d values to the gradient, the first to number `at`, and adds them to sum.
INLINE void NAME(give)(const Attention* a, int64_t at, float* sum, const float* from, int64_t dp,
                       int64_t n, int64_t d, float factor) {
  for (int64_t i = 0; i < n; i++, at += 3 * a->width) {
    for (int64_t j = 0; j < d; j++) {
      float x = from[i * dp + j] * factor;
      NAME(write)(a->dqkv, at + j, x, a->narrow);
      sum[j] += x;
    }
  }
}

// Makes scores, which are the gradient of the weights, that of the scores, and masks the weights:
// scores become weights * (mask * gradient - inner), weights become weights * mask.
INLINE void NAME(soften)(const Attention* a, NAME(Room) * r) {
  int64_t d = r->d, h = a->width, at = r->token * h + r->head * d;
  for (int64_t i = r->first; i < r->last; i++) {
    int64_t row = (i - r->first) * r->mp;
    float *w = r->weights + row, *s = r->scores + row;
    const float* save = a->saved + ((r->token + i) * a->heads + r->head) * 2;
    float inner = 0;
    for (int64_t j = at + i * h; j < at + i * h + d; j++) {
      inner += NAME(read)(a->dy, j, a->narrow) * NAME(read)(a->context, j, a->narrow);
    }
    for (int64_t j = 0; j < r->mp; j += W) {
      vf e = NAME(exp)(LOAD(w + j) - save[0]) * save[1];
      STORE(w + j, e);
    }
    if (a->dropout.on) {
      const int16_t* numbers = NAME(numbers)(a, r, i);
      for (int64_t j = 0; j < r->mp; j += W) {
        vf e = LOAD(w + j), kept = e * NAME(mask)(&a->dropout, numbers + j, 1.0f);
        STORE(s + j, LOAD(s + j) * kept - e * inner);
        STORE(w + j, kept);
      }
    } else {
      for (int64_t j = 0; j < r->mp; j += W) {
        STORE(s + j, LOAD(w + j) * (LOAD(s + j) - inner));
      }
    }
  }
}

static void NAME(attention_gradient)(void* argument, int64_t task) {
  Attention* a = argument;
  NAME(Room) r;
  if (!NAME(room)(&r, a, task)) {
    a->failed = true;
    return;
  }
  int64_t d = r.d, dp = r.dp, h = a->width, row = 3 * h, at = r.token * h + r.head * d;
  float factor = a->dropout.on ? a->dropout.factor : 1.0f;
  int64_t query = r.token * row + r.head * d;
  float* sum = a->partial + (task / a->heads) * row + r.head * d;
  for (int part = 0; part < 3; part++) memset(sum + part * h, 0, (size_t)d * 4);
  for (int64_t given = 0; NAME(next)(a, &r, true);) {
    int64_t count = r.last - r.first, low = r.low * dp;
    NAME(take)(r.o, dp, a->dy, at + r.first * h, h, count, d, factor, a->narrow);
    NAME(score)(a, &r, r.weights);
    NAME(product)(r.scores, r.mp, r.o, dp, 1, r.vt, r.columns, count, r.mp, d, false);
    NAME(soften)(a, &r);
    NAME(product)(r.v + low, dp, r.weights, 1, r.mp, r.o, dp, r.m, dp, count, true);
    NAME(product)(r.dk + low, dp, r.scores, 1, r.mp, r.q, dp, r.m, dp, count, true);
    // The gradient of the queries in the place of that of their contexts.
    NAME(product)(r.o, dp, r.scores, r.mp, 1, r.k + low, dp, count, dp, r.m, false);
    NAME(give)(a, query + r.first * row, sum, r.o, dp, count, d, 1.0f / sqrtf((float)d));
    // The keys that no other query sees are done.
    int64_t done = r.last == r.n ? r.n : a->window > 0 ? r.last - a->window : 0;
    if (done <= given) continue;
    int64_t at_key = query + h + given * row;
    NAME(give)(a, at_key, sum + h, r.dk + given * dp, dp, done - given, d, 1.0f);
    NAME(give)(a, at_key + h, sum + 2 * h, r.v + given * dp, dp, done - given, d, 1.0f);
    given = done;
  }
}

static void NAME(adam)(void* argument, int64_t chunk) {
  const Adam* a = argument;
  int64_t i = chunk * kChunk, end = i + kChunk;
  if (end > a->n) end = a->n;
  float keep_1 = 1 - a->beta_1, keep_2 = 1 - a->beta_2;
  for (; i < end; i += W) {
    int64_t n = end - i < W ? end - i : W;
    vf g = NAME(some)(a->gradient + i, n) * a->scale;
    vf m = NAME(some)(a->m + i, n), v = NAME(some)(a->v + i, n), x = NAME(some)(a->variable + i, n);
    m += (g - m) * keep_1;
    v += (g * g - v) * keep_2;
    x -= x * a->decay;
    x -= m * a->rate / (ROOT(v) + a->epsilon);
    NAME(keep)(a->m + i, m, n);
    NAME(keep)(a->v + i, v, n);
    NAME(keep)(a->variable + i, x, n);
  }
}

static void NAME(sgd)(void* argument, int64_t chunk) {
  const Sgd* a = argument;
  int64_t i = chunk * kChunk, end = i + kChunk;
  if (end > a->n) end = a->n;
  float step = a->scale * a->rate;
  for (; i < end; i += W) {
    int64_t n = end - i < W ? end - i : W;
    vf g = NAME(some)(a->gradient + i, n) * step;
    vf m = NAME(some)(a->m + i, n) * a->momentum - g;
    vf x = NAME(some)(a->variable + i, n);
    x -= x * a->decay;
    x += m + (m * a->momentum - g - m) * a->nesterov;
    NAME(keep)(a->m + i, m, n);
    NAME(keep)(a->variable + i, x, n);
  }
}

static void NAME(lion)(void* argument, int64_t chunk) {
  const Lion* a = argument;
  int64_t i = chunk * kChunk, end = i + kChunk;
  if (end > a->n) end = a->n;
  float keep_1 = 1 - a->beta_1, keep_2 = 1 - a->beta_2;
  for (; i < end; i += W) {
    int64_t n = end - i < W ? end - i : W;
    vf m = NAME(some)(a->m + i, n), x = NAME(some)(a->variable + i, n);
    vf change = NAME(some)(a->gradient + i, n) * a->scale - m;
    vf direction = m + change * keep_1;
    // A comparison gives -1 where it holds.
    vf sign = __builtin_convertvector((direction < 0) - (direction > 0), vf);
    x -= x * a->decay;
    x -= sign * a->rate;
    m += change * keep_2;
    NAME(keep)(a->m + i, m, n);
    NAME(keep)(a->variable + i, x, n);
  }
}

static void NAME(squares)(void* argument, int64_t chunk) {
  const Squares* a = argument;
  int64_t i = chunk * kChunk, end = i + kChunk;
  if (end > a->n) end = a->n;
  vf sum[4] = {};
  for (; i + 4 * W <= end; i += 4 * W) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
      vf x = LOAD(a->x + i + k * W);
      sum[k] += x * x;
    }
  }
  double total = 0;
  for (; i < end; i++) total += (double)a->x[i] * a->x[i];
  for (int k = 0; k < 4; k++) {
    for (int j = 0; j < W; j++) total += sum[k][j];
  }
  a->partial[chunk] = total;
}

#include "dense.h"
#include "generation.h"

static const Tasks NAME(tasks) = {
    .name = STRING(ISA),
    .gelu = NAME(gelu),
    .gelu_gradient = NAME(gelu_gradient),
    .gelu_tanh = NAME(gelu_tanh),
    .gelu_tanh_gradient = NAME(gelu_tanh_gradient),
    .norm = NAME(norm),
    .norm_gradient = NAME(norm_gradient),
    .scale_norm = NAME(scale_norm),
    .scale_norm_gradient = NAME(scale_norm_gradient),
    .residual = NAME(residual),
    .token_losses = NAME(token_losses),
    .geglu = NAME(geglu),
    .geglu_gradient = NAME(geglu_gradient),
    .rotary = NAME(rotary),
    .attention = NAME(attention),
    .attention_gradient = NAME(attention_gradient),
    .adam = NAME(adam),
    .sgd = NAME(sgd),
    .lion = NAME(lion),
    .squares = NAME(squares),
    .dense = NAME(dense),
    .dense_pack = NAME(dense_pack),
    .next_products = NAME(next_products),
    .next_sums = NAME(next_sums),
    .rms_norm = NAME(rms_norm),
    .swiglu = NAME(swiglu),
    .next_attention = NAME(next_attention),
    .log_sum_exp = NAME(log_sum_exp),
};

#include "novectors.h"
