// The tasks, for vectors of W floats. This file is included once per instruction set, with W and
// NAME defined. NAME adds the instruction set to all names.

typedef float NAME(vf) __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef int32_t NAME(vi) __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef uint64_t NAME(vw) __attribute__((vector_size(W * 4), aligned(8), may_alias));

#define vf NAME(vf)
#define vi NAME(vi)
#define vw NAME(vw)
#define INLINE static inline __attribute__((always_inline))
#define LOAD(p) (*(const vf*)(p))
#define STORE(p, v) (*(vf*)(p) = (v))

INLINE vf NAME(set)(float x) { return (vf){} + x; }

INLINE vf NAME(select)(vi mask, vf a, vf b) {
  return (vf)(((vi)a & mask) | ((vi)b & ~mask));
}

INLINE float NAME(sum)(vf x) {
  float s = 0;
  for (int i = 0; i < W; i++) s += x[i];
  return s;
}

// exp(x) for x <= 0, with an error of about 1e-7; 0 below -87. NaN stays NaN.
INLINE vf NAME(exp)(vf x) {
  const vf magic = NAME(set)(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  vf z = x * 1.44269504f + magic;
  vf n = z - magic;
  vf r = x - n * 0.693359375f + n * 2.12194440e-4f;  // ln 2 in two parts
  vf p = NAME(set)(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  vi power = ((vi)z - (vi)magic + 127) << 23;
  return NAME(select)(x < -87.0f, NAME(set)(0), p * (vf)power);
}

// The normal distribution's Phi(x), and exp(-x^2 / 2).
//
// 1 - Phi(x) = erfcx(a) exp(-a^2) / 2 with a = x / sqrt(2) > 0, and erfcx as a
// polynomial in 1 / (1 + 0.3 a), fitted to a relative error of 2e-8.
INLINE vf NAME(phi)(vf x, vf* gauss) {
  vf u = x * 0.70710678f;
  vf a = NAME(select)(u < 0.0f, -u, u);
  vf t = 1.0f / (1.0f + 0.3f * a);
  vf p = NAME(set)(-1.293754502e-01f);
  p = p * t + 4.847878932e-01f;
  p = p * t - 5.105300536e-01f;
  p = p * t + 5.455159557e-01f;
  p = p * t - 9.295336562e-02f;
  p = p * t + 2.141097864e-01f;
  p = p * t + 1.485782048e-01f;
  p = p * t + 1.706763114e-01f;
  p = p * t + 1.691906986e-01f;
  vf e = NAME(exp)(-(u * u));
  *gauss = e;
  vf q = 0.5f * p * t * e;
  return NAME(select)(u < 0.0f, q, 1.0f - q);
}

// Loads the first n floats of a vector, for the end of a row.
INLINE vf NAME(part)(const float* p, int64_t n) {
  vf v = {};
  memcpy(&v, p, (size_t)n * 4);
  return v;
}

// some loads n of at most W numbers; the rest are 0. keep stores them.
INLINE vf NAME(some)(const float* p, int64_t n) { return n == W ? LOAD(p) : NAME(part)(p, n); }

INLINE void NAME(keep)(float* p, vf v, int64_t n) {
  if (n == W) {
    STORE(p, v);
  } else {
    memcpy(p, &v, (size_t)n * 4);
  }
}

static void NAME(gelu)(void* argument, int64_t block) {
  const Gelu* g = argument;
  int64_t begin = block * kBlockRows * g->width, end = g->rows * g->width;
  if (end > begin + kBlockRows * g->width) end = begin + kBlockRows * g->width;
  vf e;
  int64_t i = begin;
  for (; i + W <= end; i += W) {
    vf x = LOAD(g->x + i);
    STORE(g->y + i, x * NAME(phi)(x, &e));
  }
  if (i < end) {
    vf x = NAME(part)(g->x + i, end - i);
    vf y = x * NAME(phi)(x, &e);
    memcpy(g->y + i, &y, (size_t)(end - i) * 4);
  }
}

static void NAME(gelu_gradient)(void* argument, int64_t block) {
  const Gelu* g = argument;
  int64_t begin = block * kBlockRows, end = begin + kBlockRows;
  if (end > g->rows) end = g->rows;
  float* sum = g->partial + block * g->width;
  memset(sum, 0, (size_t)g->width * 4);
  for (int64_t row = begin; row < end; row++) {
    const float *x = g->x + row * g->width, *dy = g->dy + row * g->width;
    // In the memory of x and dy, if nobody else needs them.
    float *y = g->y + row * g->width, *dx = g->dx + row * g->width;
    int64_t j = 0;
    vf e;
    for (; j + W <= g->width; j += W) {
      vf v = LOAD(x + j), p = NAME(phi)(v, &e);
      vf d = LOAD(dy + j) * (p + v * e * 0.39894228f);
      STORE(y + j, v * p);
      STORE(dx + j, d);
      STORE(sum + j, LOAD(sum + j) + d);
    }
    if (j < g->width) {
      int64_t n = g->width - j;
      vf v = NAME(part)(x + j, n), p = NAME(phi)(v, &e);
      vf d = NAME(part)(dy + j, n) * (p + v * e * 0.39894228f);
      for (int64_t k = 0; k < n; k++) y[j + k] = v[k] * p[k], dx[j + k] = d[k], sum[j + k] += d[k];
    }
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

static void NAME(norm)(void* argument, int64_t block) {
  Norm* a = argument;
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
      vf v = LOAD(a->x + at + j);
      if (a->dropout.on) v *= NAME(mask)(&a->dropout, numbers + j, a->dropout.factor);
      v += LOAD(a->residual + at + j);
      STORE(x + j, v);
      sum += v;
    }
    float mean = NAME(sum)(sum);
    for (; j < width; j++) {
      float v = a->x[at + j];
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

static void NAME(norm_gradient)(void* argument, int64_t block) {
  Norm* a = argument;
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
    float *dx = a->dx + at, *dresidual = a->dresidual + at;
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
      STORE(dx + j, x);
      STORE(bias + j, LOAD(bias + j) + x);
    }
    for (; j < width; j++) {
      float g = dy[j] * a->scale[j];
      float d = reciprocal * (g - m1 - normalized[j] * m2), x = d;
      dresidual[j] = d;
      if (a->dropout.on) x *= numbers[j] >= a->dropout.threshold ? a->dropout.factor : 0;
      dx[j] = x;
      bias[j] += x;
    }
  }
}

// One tile of a product: m x n vectors of c, n at most 2.
INLINE void NAME(tile)(float* c, int64_t ldc, const float* a, int64_t am, int64_t ak, const float* b,
                       int64_t ldb, int64_t inner, const int m, const int n) {
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
#pragma GCC unroll 6
  for (int i = 0; i < m; i++) {
    STORE(c + i * ldc, sum[i][0]);
    if (n > 1) STORE(c + i * ldc + W, sum[i][1]);
  }
}

// c[m, n] = a[m, k] b[k, n]. Element (i, k) of a is at i * am + k * ak, so a may be transposed; n
// is a multiple of W. The matrices of attention fit into the caches next to the core, so they are
// not packed.
static void NAME(product)(float* c, int64_t ldc, const float* a, int64_t am, int64_t ak,
                          const float* b, int64_t ldb, int64_t m, int64_t n, int64_t k) {
  for (int64_t j = 0; j < n; j += 2 * W) {
    int64_t i = 0;
    bool two = j + 2 * W <= n;
    for (; i + 6 <= m; i += 6) {
      if (two) {
        NAME(tile)(c + i * ldc + j, ldc, a + i * am, am, ak, b + j, ldb, k, 6, 2);
      } else {
        NAME(tile)(c + i * ldc + j, ldc, a + i * am, am, ak, b + j, ldb, k, 6, 1);
      }
    }
    switch (m - i) {
#define REST(rows)                                                                   \
  case rows:                                                                         \
    if (two) {                                                                       \
      NAME(tile)(c + i * ldc + j, ldc, a + i * am, am, ak, b + j, ldb, k, rows, 2); \
    } else {                                                                         \
      NAME(tile)(c + i * ldc + j, ldc, a + i * am, am, ak, b + j, ldb, k, rows, 1); \
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
// width of a head; np and dp are these rounded up to whole vectors.
typedef struct {
  const Run* run;
  int64_t head, token;  // token: the first of the run, in the flat rows
  int64_t n, d, np, dp;
  float *q, *k, *v, *kt, *vt, *o, *weights, *scores;
  uint64_t* random;   // of kDrawnRows rows of weights
  const int16_t* numbers[kDrawnRows];
} NAME(Room);

static bool NAME(room)(NAME(Room) * r, const Attention* a, int64_t task) {
  r->run = a->run + task / a->heads, r->head = task % a->heads;
  r->token = r->run->row * a->row_length + r->run->column;
  int64_t n = r->n = r->run->length, d = r->d = a->width / a->heads;
  r->np = (n + W - 1) / W * W, r->dp = (d + W - 1) / W * W;
  int64_t rows = n * r->dp, columns = d * r->np, square = n * r->np;
  float* p = gorbit_scratch(4 * rows + 2 * columns + 2 * square + 2 * NAME(drawn)(kDrawnRows, n));
  if (p == NULL) return false;
  r->q = p, r->k = r->q + rows, r->v = r->k + rows, r->o = r->v + rows;
  r->kt = r->o + rows, r->vt = r->kt + columns;
  r->weights = r->vt + columns, r->scores = r->weights + square;
  r->random = (uint64_t*)(r->scores + square);
  return true;
}

// Copies a run's part of a head from rows with a stride.
INLINE void NAME(take)(float* to, int64_t dp, const float* from, int64_t stride, int64_t n, int64_t d,
                       float factor) {
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < d; j++) to[i * dp + j] = from[i * stride + j] * factor;
    for (int64_t j = d; j < dp; j++) to[i * dp + j] = 0;
  }
}

INLINE void NAME(transpose)(float* to, int64_t np, const float* from, int64_t dp, int64_t n,
                            int64_t d) {
  for (int64_t j = 0; j < d; j++) {
    for (int64_t i = 0; i < n; i++) to[j * np + i] = from[i * dp + j];
    for (int64_t i = n; i < np; i++) to[j * np + i] = 0;
  }
}

// Returns the random numbers of row i of a run's weights. Rows must be requested in order. Several
// rows are drawn at once, so that short rows use all lanes.
INLINE const int16_t* NAME(numbers)(const Attention* a, NAME(Room) * r, int64_t i) {
  if (i % kDrawnRows == 0) {
    int64_t s = a->row_length, column = r->run->column, rows = r->n - i;
    if (rows > kDrawnRows) rows = kDrawnRows;
    int64_t first = ((r->run->row * a->heads + r->head) * s + column + i) * s + column;
    NAME(draw)(&a->dropout, first, r->n, rows, s, r->random);
    const int16_t* at = (const int16_t*)r->random;
    for (int64_t row = 0; row < rows; row++, first += s) {
      r->numbers[row] = at + first % 8;
      at += 8 * ((first + r->n - 1) / 8 - first / 8 + 1);
    }
  }
  return r->numbers[i % kDrawnRows];
}

// Copies query (scaled), key and value, and computes the scores of all pairs. The score of a pair
// from different sequences is so low that its exponential is 0.
static void NAME(score)(const Attention* a, const NAME(Room) * r, float* scores) {
  int64_t n = r->n, d = r->d, h = a->width;
  const float* qkv = a->qkv + r->token * 3 * h + r->head * d;
  NAME(take)(r->q, r->dp, qkv, 3 * h, n, d, 1.0f / sqrtf((float)d));
  NAME(take)(r->k, r->dp, qkv + h, 3 * h, n, d, 1.0f);
  NAME(take)(r->v, r->dp, qkv + 2 * h, 3 * h, n, d, 1.0f);
  NAME(transpose)(r->kt, r->np, r->k, r->dp, n, d);
  NAME(product)(scores, r->np, r->q, r->dp, 1, r->kt, r->np, n, r->np, d);
  const int32_t* ids = r->run->ids;
  for (int64_t i = 0; i < n; i++, scores += r->np) {
    for (int64_t j = 0; ids != NULL && j < n; j++) {
      if (ids[j] != ids[i]) scores[j] = -1e9f;
    }
    for (int64_t j = n; j < r->np; j++) scores[j] = -INFINITY;
  }
}

static void NAME(attention)(void* argument, int64_t task) {
  Attention* a = argument;
  NAME(Room) r;
  if (!NAME(room)(&r, a, task)) {
    a->failed = true;
    return;
  }
  int64_t n = r.n, d = r.d, h = a->width, head = r.head, token = r.token;
  NAME(score)(a, &r, r.scores);
  for (int64_t i = 0; i < n; i++) {
    float* s = r.scores + i * r.np;
    vf top = LOAD(s);
    for (int64_t j = W; j < r.np; j += W) {
      vf x = LOAD(s + j);
      top = NAME(select)(top > x, top, x);
    }
    float most = top[0];
    for (int j = 1; j < W; j++) most = top[j] > most ? top[j] : most;
    vf sum = {};
    for (int64_t j = 0; j < r.np; j += W) {
      vf e = NAME(exp)(LOAD(s + j) - most);
      STORE(s + j, e);
      sum += e;
    }
    float share = 1.0f / NAME(sum)(sum);
    for (int64_t j = 0; j < r.np; j += W) STORE(s + j, LOAD(s + j) * share);
    if (a->save) {
      float* save = a->save + ((token + i) * a->heads + head) * 2;
      save[0] = most, save[1] = share;
    }
    if (!a->dropout.on) continue;
    const int16_t* numbers = NAME(numbers)(a, &r, i);
    for (int64_t j = 0; j < r.np; j += W) {
      STORE(s + j, LOAD(s + j) * NAME(mask)(&a->dropout, numbers + j, 1.0f));
    }
  }
  NAME(product)(r.o, r.dp, r.scores, r.np, 1, r.v, r.dp, n, r.dp, n);
  float factor = a->dropout.on ? a->dropout.factor : 1.0f;
  for (int64_t i = 0; i < n; i++) {
    float* y = a->y + (token + i) * h + head * d;
    for (int64_t j = 0; j < d; j++) y[j] = r.o[i * r.dp + j] * factor;
  }
}

// Writes n rows of d values to the gradient, and their sum to sum.
INLINE void NAME(give)(float* to, int64_t stride, float* sum, const float* from, int64_t dp,
                       int64_t n, int64_t d, float factor) {
  memset(sum, 0, (size_t)d * 4);
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < d; j++) {
      float x = from[i * dp + j] * factor;
      to[i * stride + j] = x;
      sum[j] += x;
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
  int64_t n = r.n, d = r.d, h = a->width, head = r.head, token = r.token;
  float root = 1.0f / sqrtf((float)d);
  float factor = a->dropout.on ? a->dropout.factor : 1.0f;
  NAME(score)(a, &r, r.weights);
  NAME(transpose)(r.vt, r.np, r.v, r.dp, n, d);
  const float* dy = a->dy + token * h + head * d;
  const float* y = a->context + token * h + head * d;
  NAME(take)(r.o, r.dp, dy, h, n, d, factor);  // the gradient of the context, scaled

  NAME(product)(r.scores, r.np, r.o, r.dp, 1, r.vt, r.np, n, r.np, d);
  for (int64_t i = 0; i < n; i++) {
    float *w = r.weights + i * r.np, *s = r.scores + i * r.np;
    const float* save = a->saved + ((token + i) * a->heads + head) * 2;
    float inner = 0;
    for (int64_t j = 0; j < d; j++) inner += dy[i * h + j] * y[i * h + j];
    for (int64_t j = 0; j < r.np; j += W) {
      vf e = NAME(exp)(LOAD(w + j) - save[0]) * save[1];
      STORE(w + j, e);
    }
    // scores become weights * (mask * gradient - inner), weights become weights * mask.
    if (a->dropout.on) {
      const int16_t* numbers = NAME(numbers)(a, &r, i);
      for (int64_t j = 0; j < r.np; j += W) {
        vf e = LOAD(w + j), kept = e * NAME(mask)(&a->dropout, numbers + j, 1.0f);
        STORE(s + j, LOAD(s + j) * kept - e * inner);
        STORE(w + j, kept);
      }
    } else {
      for (int64_t j = 0; j < r.np; j += W) {
        STORE(s + j, LOAD(w + j) * (LOAD(s + j) - inner));
      }
    }
  }
  float* dqkv = a->dqkv + token * 3 * h + head * d;
  float* sum = a->partial + (task / a->heads) * 3 * h + head * d;
  // The values are no longer needed, so each product is stored in their place.
  NAME(product)(r.v, r.dp, r.weights, 1, r.np, r.o, r.dp, n, r.dp, n);
  NAME(give)(dqkv + 2 * h, 3 * h, sum + 2 * h, r.v, r.dp, n, d, 1.0f);
  NAME(product)(r.v, r.dp, r.scores, r.np, 1, r.k, r.dp, n, r.dp, n);
  NAME(give)(dqkv, 3 * h, sum, r.v, r.dp, n, d, root);
  NAME(product)(r.v, r.dp, r.scores, 1, r.np, r.q, r.dp, n, r.dp, n);
  NAME(give)(dqkv + h, 3 * h, sum + h, r.v, r.dp, n, d, 1.0f);
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
    vf root;
    for (int k = 0; k < W; k++) root[k] = sqrtf(v[k]);
    x -= x * a->decay;
    x -= m * a->rate / (root + a->epsilon);
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

static const Tasks NAME(tasks) = {
    STRING(ISA),         NAME(gelu),      NAME(gelu_gradient),      NAME(norm),
    NAME(norm_gradient), NAME(attention), NAME(attention_gradient), NAME(adam),
    NAME(sgd),           NAME(lion),      NAME(squares),
};

#undef vf
#undef vi
#undef vw
#undef INLINE
#undef LOAD
#undef STORE
