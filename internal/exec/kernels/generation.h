// The tasks of generation, included by tasks.h. An element of a product is a sum over its terms in an
// order that does not depend on what else is computed with it, such as how many sequences a call has.

// How many vectors of sums fit into the registers: 32 of AVX-512 and NEON, 16 of others.
#if W == 16 || defined(__aarch64__)
#define SUMS 24
#else
#define SUMS 12
#endif

// strip computes m rows of c vectors of x w, the last of which has only n numbers. It asks for what
// stands `ahead` numbers after each that it reads of w, unless that is 0. w begins at its number `at`.
INLINE void NAME(strip)(float* y, int64_t ldy, const float* x, int64_t ldx, const void* w, int64_t at,
                        int64_t ldw, bool narrow, int64_t inner, const int m, const int c, int64_t n,
                        int to, int64_t ahead) {
  vf sum[SUMS];
#pragma GCC unroll 24
  for (int i = 0; i < m; i++) {
#pragma GCC unroll 24
    for (int j = 0; j < c; j++) {
      sum[i * c + j] = to != kGoOn ? (vf){} : NAME(some)(y + i * ldy + j * W, j == c - 1 ? n : W);
    }
  }
  for (int64_t k = 0; k < inner; k++) {
    int64_t row = at + k * ldw;
    if (ahead > 0) {
#pragma GCC unroll 24
      for (int j = 0; j < c; j++) {
        if (j * W % 16 == 0) __builtin_prefetch((char*)w + (row + ahead + j * W) * (narrow ? 2 : 4));
      }
    }
    vf b[SUMS];
#pragma GCC unroll 24
    for (int j = 0; j < c; j++) {
      b[j] = NAME(read_some)(w, row + j * W, j == c - 1 ? n : W, narrow);
    }
#pragma GCC unroll 24
    for (int i = 0; i < m; i++) {
      vf a = NAME(set)(x[i * ldx + k]);
#pragma GCC unroll 24
      for (int j = 0; j < c; j++) sum[i * c + j] += a * b[j];
    }
  }
#pragma GCC unroll 24
  for (int i = 0; i < m; i++) {
#pragma GCC unroll 24
    for (int j = 0; j < c; j++) {
      int64_t count = j == c - 1 ? n : W;
      float* out = y + i * ldy + j * W;
      if (to == kAdd) sum[i * c + j] = NAME(some)(out, count) + sum[i * c + j];
      NAME(keep)(out, sum[i * c + j], count);
    }
  }
}

// strips computes m rows of c vectors, m being at most SUMS / c. Only the first asks for what is ahead. With
// c = 1 the vectors have `count` numbers.
#define STRIPS(name, c, narrow)                                                                     \
  static void NAME(name)(float* y, int64_t ldy, const float* x, int64_t ldx, const void* w,         \
                         int64_t at, int64_t ldw, int64_t m, int64_t k, int64_t count, int to,      \
                         int64_t ahead) {                                                           \
    const int most = SUMS / (c) > 8 ? 8 : SUMS / (c);                                               \
    int64_t n = (c) == 1 ? count : W;                                                               \
    for (; m >= most; m -= most, x += most * ldx, y += most * ldy, ahead = 0) {                     \
      NAME(strip)(y, ldy, x, ldx, w, at, ldw, narrow, k, most, c, n, to, ahead);                    \
    }                                                                                               \
    for (; m >= 4 && SUMS / (c) > 4; m -= 4, x += 4 * ldx, y += 4 * ldy, ahead = 0) {               \
      NAME(strip)(y, ldy, x, ldx, w, at, ldw, narrow, k, 4, SUMS / (c) > 4 ? (c) : 1, n, to, ahead); \
    }                                                                                               \
    for (; m >= 2; m -= 2, x += 2 * ldx, y += 2 * ldy, ahead = 0) {                                 \
      if (SUMS / (c) >= 2) NAME(strip)(y, ldy, x, ldx, w, at, ldw, narrow, k, 2, c, n, to, ahead);  \
    }                                                                                               \
    if (m > 0) NAME(strip)(y, ldy, x, ldx, w, at, ldw, narrow, k, 1, c, n, to, ahead);              \
  }
// A row of wide strips is three lines of the cache.
#define WIDE (48 / W)
STRIPS(strips1, 1, false)
STRIPS(strips3, 3, false)
STRIPS(strips_wide, WIDE, false)
STRIPS(strips1_bf16, 1, true)
STRIPS(strips3_bf16, 3, true)
STRIPS(strips_wide_bf16, 2 * WIDE, true)
#undef STRIPS

// y[m, n] and x[m, k] w[k, n], as `to` says.
static void NAME(along)(float* y, int64_t ldy, const float* x, int64_t ldx, const void* w, int64_t at,
                        int64_t ldw, bool narrow, int64_t m, int64_t n, int64_t k, int to,
                        int64_t ahead) {
  int64_t j = 0;
#define STRIPS(name, count)                                                                         \
  (narrow ? NAME(name##_bf16) : NAME(name))(y + j, ldy, x, ldx, w, at + j, ldw, m, k, count, to, ahead)
  // Wide strips read longer parts of rows, and narrow ones have more rows of x for each.
  int64_t wide = narrow ? 96 : 48;
  if (m <= SUMS * W / wide) {
    for (; j + wide <= n; j += wide) STRIPS(strips_wide, W);
  }
  for (; j + 3 * W <= n; j += 3 * W) STRIPS(strips3, W);
  for (; j < n; j += W) STRIPS(strips1, n - j < W ? n - j : W);
#undef STRIPS
}

// The sums of W vectors, that of vector i in element i. It overwrites them.
INLINE vf NAME(sums)(vf* v) {
#pragma GCC unroll 4
  for (int h = W / 2; h > 0; h /= 2) {
    vi own, other;
#pragma GCC unroll 16
    for (int l = 0; l < W; l++) own[l] = l & h ? l + W : l, other[l] = l & h ? l - h + W : l + h;
#pragma GCC unroll 8
    for (int i = 0; i < h; i++) {
      v[i] = __builtin_shuffle(v[i], v[i + h], own) + __builtin_shuffle(v[i], v[i + h], other);
    }
  }
  return v[0];
}

// m rows of x times W / m rows of t, of which there are n, from its number `at`.
INLINE void NAME(dots)(float* y, int64_t ldy, const float* x, int64_t ldx, const void* t, int64_t at,
                       int64_t ldt, bool narrow, int64_t inner, const int m, int64_t n) {
  vf sum[W] = {};
  const int c = W / m;
  int64_t row[W];
#pragma GCC unroll 16
  for (int j = 0; j < c; j++) row[j] = at + (j < n ? j : n - 1) * ldt;
  int64_t k = 0;
  for (; k + W <= inner; k += W) {
    vf a[4];
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) a[i] = LOAD(x + i * ldx + k);
#pragma GCC unroll 16
    for (int j = 0; j < c; j++) {
      vf b = NAME(read_some)(t, row[j] + k, W, narrow);
#pragma GCC unroll 4
      for (int i = 0; i < m; i++) sum[i * c + j] += a[i] * b;
    }
  }
  if (k < inner) {
    for (int j = 0; j < c; j++) {
      vf b = NAME(read_some)(t, row[j] + k, inner - k, narrow);
      for (int i = 0; i < m; i++) sum[i * c + j] += NAME(part)(x + i * ldx + k, inner - k) * b;
    }
  }
  float out[W] __attribute__((aligned(64)));
  STORE(out, NAME(sums)(sum));
  for (int i = 0; i < m; i++) memcpy(y + i * ldy, out + i * c, (size_t)(n < c ? n : c) * 4);
}

// y[m, n] = x[m, k] t[n, k]^T.
INLINE void NAME(across_of)(float* y, int64_t ldy, const float* x, int64_t ldx, const void* t, int64_t ldt,
                            bool narrow, int64_t m, int64_t n, int64_t k) {
  // Rows of t that stay next to the core while all rows of x come by.
  for (int64_t from = 0; from < n; from += W) {
    int64_t end = n - from < W ? n : from + W, i = 0;
#define ROWS(rows)                                                                                  \
  for (; i + rows <= m; i += rows) {                                                                \
    for (int64_t j = from; j < end; j += W / rows) {                                                \
      NAME(dots)(y + i * ldy + j, ldy, x + i * ldx, ldx, t, j * ldt, ldt, narrow, k, rows, end - j); \
    }                                                                                               \
  }
    ROWS(4)
    ROWS(2)
    ROWS(1)
#undef ROWS
  }
}

static void NAME(across)(float* y, int64_t ldy, const float* x, int64_t ldx, const float* t, int64_t ldt,
                         int64_t m, int64_t n, int64_t k) {
  NAME(across_of)(y, ldy, x, ldx, t, ldt, false, m, n, k);
}

static void NAME(across_bf16)(float* y, int64_t ldy, const float* x, int64_t ldx, const uint16_t* t,
                              int64_t ldt, int64_t m, int64_t n, int64_t k) {
  NAME(across_of)(y, ldy, x, ldx, t, ldt, true, m, n, k);
}

// What becomes of n numbers of a product from a column on: its bias is added, and its activation made.
INLINE vf NAME(finished)(const Product* p, vf x, int64_t column, int64_t n) {
  vf unused;
  if (p->bias != NULL) x += NAME(some)(p->bias + column, n);
  switch (p->activation) {
    case kRelu:
      return NAME(select)(x < 0.0f, NAME(set)(0), x);
    case kGelu:
      return NAME(activation)(x, &unused, false);
    case kGeluTanh:
      return NAME(activation)(x, &unused, true);
    default:
      return x;
  }
}

// y[columns, n] of the numbers of n rows of w, from its number `at` on, a row being ldt numbers after the one
// before it.
static void NAME(turned)(float* y, const void* w, int64_t at, int64_t ldt, bool narrow, int64_t columns,
                         int64_t n) {
  int64_t j = 0;
  for (; j + W <= n; j += W) {
    int64_t k = 0;
    for (; k + W <= columns; k += W) {
      vf v[W];
#pragma GCC unroll 16
      for (int i = 0; i < W; i++) {
        int64_t from = at + (j + i) * ldt + k;
        // The rows after these, which come next.
        __builtin_prefetch((char*)w + (from + W * ldt) * (narrow ? 2 : 4));
        v[i] = NAME(read_some)(w, from, W, narrow);
      }
#pragma GCC unroll 4
      for (int h = W / 2; h > 0; h /= 2) {
        vi upper, lower;
#pragma GCC unroll 16
        for (int l = 0; l < W; l++) upper[l] = l & h ? l - h + W : l, lower[l] = l & h ? l + W : l + h;
#pragma GCC unroll 16
        for (int i = 0; i < W; i++) {
          if (i & h) continue;
          vf a = v[i], b = v[i + h];
          v[i] = __builtin_shuffle(a, b, upper);
          v[i + h] = __builtin_shuffle(a, b, lower);
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < W; i++) STORE(y + (k + i) * kProductColumns + j, v[i]);
    }
    for (; k < columns; k++) {
      for (int i = 0; i < W; i++) {
        y[k * kProductColumns + j + i] = NAME(read_some)(w, at + (j + i) * ldt + k, 1, narrow)[0];
      }
    }
  }
  for (; j < n; j++) {
    for (int64_t k = 0; k < columns; k++) {
      y[k * kProductColumns + j] = NAME(read_some)(w, at + j * ldt + k, 1, narrow)[0];
    }
  }
}

// A part of a product with a transposed matrix.
static bool NAME(next_across)(const Product* p, Part part, const float* x, float* y) {
  int64_t at = part.column * p->inner, inner = p->inner;
  if (inner <= kTurnedTerms) {
    float* columns = gorbit_scratch(inner * kProductColumns);
    if (columns == NULL) return false;
    NAME(turned)(columns, p->w, at, inner, p->narrow, inner, part.columns);
    NAME(along)(y, p->width, x, inner, columns, 0, kProductColumns, false, part.rows, part.columns, inner,
                kSet, 0);
  } else if (p->narrow) {
    const uint16_t* w = (const uint16_t*)p->w + at;
    NAME(across_bf16)(y, p->width, x, inner, w, inner, part.rows, part.columns, inner);
  } else {
    const float* w = (const float*)p->w + at;
    NAME(across)(y, p->width, x, inner, w, inner, part.rows, part.columns, inner);
  }
  return true;
}

// A group of terms of few rows.
static void NAME(next_group)(const Product* p, int64_t task) {
  int64_t k = task * p->group, end = p->inner - k < p->group ? p->inner : k + p->group;
  float* y = p->partial + task * p->rows * p->width;
  // Products of several rows take long enough that the next columns can come meanwhile.
  int64_t ahead = p->rows > 1 ? 3 * W : 0;
  for (int to = kSet; k < end; k += kPanel, to = kGoOn) {
    NAME(along)(y, p->width, p->x + k, p->inner, p->w, k * p->width, p->width, p->narrow, p->rows,
                p->width, end - k < kPanel ? end - k : kPanel, to, ahead);
  }
}

// A part of a product, with the sums of groups in their order. It returns false if there is no memory.
static bool NAME(next_part)(const Product* p, Part part) {
  const float* x = p->x + part.row * p->inner;
  float* y = p->y + part.row * p->width + part.column;
  if (p->transposed && !NAME(next_across)(p, part, x, y)) return false;
  for (int64_t k = 0; !p->transposed && k < p->inner; k += p->group) {
    NAME(along)(y, p->width, x + k, p->inner, p->w, k * p->width + part.column, p->width, p->narrow,
                part.rows, part.columns, p->inner - k < p->group ? p->inner - k : p->group,
                p->add || k > 0 ? kAdd : kSet, kAhead * p->width);
  }
  if (p->bias == NULL && p->activation == kNoActivation) return true;
  for (int64_t row = 0; row < part.rows; row++, y += p->width) {
    for (int64_t j = 0; j < part.columns; j += W) {
      int64_t n = part.columns - j < W ? part.columns - j : W;
      NAME(keep)(y + j, NAME(finished)(p, NAME(some)(y + j, n), part.column + j, n), n);
    }
  }
  return true;
}

static void NAME(rms_norm)(void* argument, int64_t block) {
  const ScaleNorm* a = argument;
  int64_t begin = block * kBlockRows, end = begin + kBlockRows, width = a->width;
  if (end > a->rows) end = a->rows;
  for (int64_t row = begin; row < end; row++) {
    const float* x = a->x + row * width;
    float* y = a->y + row * width;
    vf sum = {};
    for (int64_t j = 0; j < width; j += W) {
      vf v = NAME(some)(x + j, width - j < W ? width - j : W);
      sum += v * v;
    }
    vf reciprocal = NAME(set)(1 / sqrtf(NAME(sum)(sum) / (float)width + a->epsilon));
    for (int64_t j = 0; j < width; j += W) {
      int64_t n = width - j < W ? width - j : W;
      NAME(keep)(y + j, NAME(some)(x + j, n) * reciprocal * NAME(some)(a->scale + j, n), n);
    }
  }
}

// gate * sigmoid(gate) * x of n numbers; y may be the memory of gate.
INLINE void NAME(swish)(float* y, const float* gate, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += W) {
    int64_t count = n - i < W ? n - i : W;
    vf g = NAME(some)(gate + i, count);
    vf e = NAME(exp)(NAME(select)(g < 0.0f, g, -g));
    vf sigmoid = NAME(select)(g < 0.0f, e, NAME(set)(1)) / (1.0f + e);
    NAME(keep)(y + i, g * sigmoid * NAME(some)(x + i, count), count);
  }
}

static void NAME(swiglu)(void* argument, int64_t chunk) {
  const Swiglu* a = argument;
  int64_t i = chunk * kSmallChunk;
  NAME(swish)(a->y + i, a->gate + i, a->x + i, a->n - i < kSmallChunk ? a->n - i : kSmallChunk);
}

static void NAME(next_products)(void* argument, int64_t task) {
  Products* p = argument;
  int i = 0;
  while (task >= p->ends[i]) i++;
  if (i > 0) task -= p->ends[i - 1];
  int last = p->gated && p->of[0].partial == NULL ? 1 : i;
  for (; i <= last; i++) {
    const Product* of = &p->of[i];
    if (of->partial != NULL) {
      NAME(next_group)(of, task);
    } else if (!NAME(next_part)(of, product_part(of, task))) {
      p->failed = true;
    }
  }
  if (!p->gated || p->of[0].partial != NULL) return;
  Part part = product_part(p->of, task);
  for (int64_t row = part.row; row < part.row + part.rows; row++) {
    float* y = p->of[0].y + row * p->of[0].width + part.column;
    NAME(swish)(y, y, p->of[1].y + row * p->of[1].width + part.column, part.columns);
  }
}

// Adds the groups of a row of each product.
static void NAME(next_sums)(void* argument, int64_t row) {
  const Products* p = argument;
  for (int i = 0; i < p->count; i++) {
    const Product* a = &p->of[i];
    if (a->partial == NULL) continue;
    float* y = a->y + row * a->width;
    for (int64_t j = 0; j < a->width; j += W) {
      int64_t n = a->width - j < W ? a->width - j : W;
      const float* part = a->partial + row * a->width + j;
      vf sum = NAME(some)(part, n);
      if (a->add) sum = NAME(some)(y + j, n) + sum;
      for (int64_t k = a->group; k < a->inner; k += a->group) {
        sum += NAME(some)(part += a->rows * a->width, n);
      }
      NAME(keep)(y + j, NAME(finished)(a, sum, j, n), n);
    }
  }
  float* gate = p->of[0].y + row * p->of[0].width;
  if (p->gated) NAME(swish)(gate, gate, p->of[1].y + row * p->of[1].width, p->of[1].width);
}

// Softmax of n scores of a row, of those that are allowed. The others, and all if none is, become 0.
INLINE void NAME(softmax)(float* s, const bool* allowed, const float* bias, float scale, int64_t n) {
  float top = -INFINITY;
  for (int64_t j = 0; j < n; j++) {
    s[j] = allowed[j] ? s[j] * scale + (bias != NULL ? bias[j] : 0) : -INFINITY;
    top = s[j] > top ? s[j] : top;
  }
  if (top == -INFINITY) {
    memset(s, 0, (size_t)n * 4);
    return;
  }
  vf sum = {};
  for (int64_t j = 0; j < n; j += W) {
    int64_t count = n - j < W ? n - j : W;
    vf x = NAME(some)(s + j, count) - top;
    // exp takes no infinity.
    vf e = NAME(exp)(NAME(select)(x < -100.0f, NAME(set)(-100), x));
    NAME(keep)(s + j, e, count);
    for (int64_t k = count; k < W; k++) e[k] = 0;
    sum += e;
  }
  float factor = 1 / NAME(sum)(sum);
  for (int64_t j = 0; j < n; j += W) {
    int64_t count = n - j < W ? n - j : W;
    NAME(keep)(s + j, NAME(some)(s + j, count) * factor, count);
  }
}

// Which of n columns each of some positions sees, [positions, n].
static void NAME(seen)(const NextAttention* a, int64_t row, int64_t first, int64_t queries, int64_t n,
                       bool* allowed) {
  const int32_t* slots = a->slots + row * a->columns;
  for (int64_t i = 0; i < queries; i++, allowed += n) {
    if (a->positions == NULL) {
      for (int64_t j = 0; j < n; j++) allowed[j] = slots[j] != 0;
      continue;
    }
    int64_t end = a->positions[row * a->tokens + first + i], from = 0;
    if (a->window > 0 && end >= a->window) from = end - a->window + 1;
    for (int64_t j = 0; j < n; j++) allowed[j] = j >= from && j <= end;
  }
}

// The columns up to the last that any of some positions sees.
static int64_t NAME(reach)(const NextAttention* a, int64_t row, int64_t first, int64_t queries) {
  int64_t n = 0, columns = a->columns;
  if (a->slots != NULL && a->positions == NULL) {
    for (n = columns; n > 0 && a->slots[row * columns + n - 1] == 0; n--) {
    }
    return n;
  }
  for (int64_t i = 0; i < queries; i++) {
    int64_t query = row * a->tokens + first + i, j = columns;
    if (a->slots != NULL) {
      j = a->positions[query] + 1 < columns ? a->positions[query] + 1 : columns;
    } else {
      while (j > n && !a->allowed[query * columns + j - 1]) j--;
    }
    n = j > n ? j : n;
  }
  return n;
}

// Keys or values of a head, [n, d], of the slots of a row. They are copied to `to`, whose rows they are
// then, unless they follow each other in the cache.
static const float* NAME(cached)(const NextAttention* a, const float* cache, int64_t row, int64_t head,
                                 int64_t n, int64_t d, float* to, int64_t* stride) {
  const int32_t* slots = a->slots + row * a->columns;
  int64_t j = 1;
  while (j < n && slots[j] == slots[0] + j) j++;
  *stride = a->shared * d;
  cache += head * d;
  if (j >= n) return n > 0 ? cache + slots[0] * *stride : cache;
  for (j = 0; j < n; j++) memcpy(to + j * d, cache + slots[j] * *stride, (size_t)d * sizeof(float));
  *stride = d;
  return to;
}

// A task is kNextQueries positions of a row, for one head of keys.
static void NAME(next_attention)(void* argument, int64_t task) {
  NextAttention* a = argument;
  int64_t groups = a->heads / a->shared, d = a->width / a->heads, columns = a->columns;
  int64_t part = task % a->parts, head = task / a->parts % a->shared, row = task / a->parts / a->shared;
  int64_t first = part * kNextQueries, stride = a->shared * d, value_stride = stride;
  int64_t queries = a->tokens - first < kNextQueries ? a->tokens - first : kNextQueries;
  int64_t n = NAME(reach)(a, row, first, queries);
  int64_t most = queries > groups ? queries : groups;
  float* scores = gorbit_scratch(most * n + 1 + (a->slots != NULL ? 2 * n * d + queries * n / 4 + 1 : 0));
  if (scores == NULL) {
    a->failed = true;
    return;
  }
  const bool* allowed;
  const float *key, *value;
  if (a->slots != NULL) {
    float* room = scores + most * n;
    bool* seen = (bool*)(room + 2 * n * d);
    NAME(seen)(a, row, first, queries, n, seen);
    allowed = seen;
    key = NAME(cached)(a, a->key, row, head, n, d, room, &stride);
    value = NAME(cached)(a, a->value, row, head, n, d, room + n * d, &value_stride);
    columns = n;
  } else {
    allowed = a->allowed + (row * a->tokens + first) * columns;
    key = a->key + row * columns * stride + head * d;
    value = a->value + row * columns * stride + head * d;
  }
  // One position has all heads of queries side by side; of several, one head after the other is taken.
  int64_t times = queries == 1 ? 1 : groups, m = queries == 1 ? groups : queries;
  int64_t step = queries == 1 ? d : a->width;
  for (int64_t g = 0; g < times; g++) {
    int64_t at = (row * a->tokens + first) * a->width + (head * groups + g) * d;
    NAME(across)(scores, n, a->query + at, step, key, stride, m, n, d);
    for (int64_t i = 0; i < m; i++) {
      int64_t query = queries == 1 ? 0 : i, own = head * groups + (queries == 1 ? i : g);
      const float* bias = a->bias;
      if (bias != NULL) bias += ((row * a->heads + own) * a->tokens + first + query) * a->columns;
      NAME(softmax)(scores + i * n, allowed + query * columns, bias, a->scale, n);
    }
    NAME(along)(a->y + at, step, scores, n, value, 0, value_stride, false, m, d, n, kSet,
                kAhead * value_stride);
  }
}

// The logarithm of the sum of the exponentials of n numbers; NaN if one is NaN or infinite, but for
// -infinity. Sums of float32 numbers are few before they are added in float64.
static double NAME(log_sum_exp)(const float* x, int64_t n) {
  vf top = NAME(set)(-INFINITY);
  vi good = ~(vi){};
  int64_t j = 0;
  float most = -INFINITY;
  for (; j + W <= n; j += W) {
    vf v = LOAD(x + j);
    good &= v < INFINITY;
    top = NAME(select)(v > top, v, top);
  }
  for (; j < n; j++) {
    if (!(x[j] < INFINITY)) return NAN;
    most = x[j] > most ? x[j] : most;
  }
  for (int i = 0; i < W; i++) {
    if (!good[i]) return NAN;
    most = top[i] > most ? top[i] : most;
  }
  if (most == -INFINITY) return most;
  double sum = 0;
  for (j = 0; j < n;) {
    int64_t end = n - j < 64 * W ? n : j + 64 * W;
    vf some = {};
    for (; j < end; j += W) {
      int64_t count = end - j < W ? end - j : W;
      vf v = NAME(some)(x + j, count) - most;
      // exp takes no infinity.
      vf e = NAME(exp)(NAME(select)(v < -100.0f, NAME(set)(-100), v));
      for (int64_t k = count; k < W; k++) e[k] = 0;
      some += e;
    }
    sum += NAME(sum)(some);
  }
  return most + log(sum);
}

#undef SUMS
#undef WIDE
