// The tasks of products with packed matrices, included by tasks.h. An element of a product is the sum of
// its terms in their order, whatever else is computed with it.

// Rows and panels of a tile: as many as the registers hold sums of.
#if W == 16
#define kTileRows 8
#define kTilePanels 3
#elif W == 8 || defined(__aarch64__)
#define kTileRows 6
#define kTilePanels 1
#else
#define kTileRows 3
#define kTilePanels 1
#endif

// Puts a matrix [inputs, outputs] into panels.
static void NAME(dense_pack)(void* argument, int64_t panel) {
  const Dense* a = argument;
  float* to = a->y + panel * a->inputs * kPanelColumns;
  for (int64_t k = 0; k < a->inputs; k++, to += kPanelColumns) {
    memcpy(to, a->w + k * a->outputs + panel * kPanelColumns, kPanelColumns * sizeof(float));
  }
}

// Computes the terms from k to end of some rows of some panels. Sums that do not begin with the first term
// are in y, and bias and GELU follow the last term.
INLINE void NAME(dense_tile)(const Dense* a, int64_t row, const int rows, int64_t panel, const int panels,
                             int64_t k, int64_t end) {
  enum { kParts = kPanelColumns / W };
  const int64_t stride = a->inputs * kPanelColumns;
  const float* w = a->w + panel * stride + k * kPanelColumns;
  const float* x = a->x + row * a->inputs;
  float* y = a->y + row * a->outputs + panel * kPanelColumns;
  vf sum[kTileRows][kTilePanels * kParts];
#pragma GCC unroll 32
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 32
    for (int p = 0; p < panels * kParts; p++) sum[r][p] = k == 0 ? (vf){} : LOAD(y + r * a->outputs + p * W);
  }
  for (int64_t i = k; i < end; i++, w += kPanelColumns) {
    vf column[kTilePanels * kParts];
#pragma GCC unroll 32
    for (int p = 0; p < panels * kParts; p++) column[p] = LOAD(w + p / kParts * stride + p % kParts * W);
#pragma GCC unroll 32
    for (int r = 0; r < rows; r++) {
      vf term = NAME(set)(x[r * a->inputs + i]);
#pragma GCC unroll 32
      for (int p = 0; p < panels * kParts; p++) sum[r][p] += term * column[p];
    }
  }
  bool last = end == a->inputs;
#pragma GCC unroll 32
  for (int p = 0; p < panels * kParts; p++) {
    vf bias = {};
    if (last && a->bias) bias = LOAD(a->bias + panel * kPanelColumns + p * W);
#pragma GCC unroll 32
    for (int r = 0; r < rows; r++) {
      vf v = sum[r][p], unused;
      if (last && a->bias) v += bias;
      if (last && a->gelu) v *= NAME(phi)(v, &unused);
      STORE(y + r * a->outputs + p * W, v);
    }
  }
}

// Computes up to kTileRows rows of kTilePanels panels, or of one.
static void NAME(dense_strip)(const Dense* a, int64_t row, int rows, int64_t panel, int panels, int64_t k,
                              int64_t end) {
#define CASE(n)                                                                          \
  case n:                                                                                \
    if (n > kTileRows) __builtin_unreachable();                                          \
    if (panels == 1) {                                                                   \
      NAME(dense_tile)(a, row, n <= kTileRows ? n : 1, panel, 1, k, end);                \
    } else {                                                                             \
      NAME(dense_tile)(a, row, n <= kTileRows ? n : 1, panel, kTilePanels, k, end);      \
    }                                                                                    \
    break;
  switch (rows) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) }
#undef CASE
}

static void NAME(dense)(void* argument, int64_t task) {
  const Dense* a = argument;
  int64_t panels = a->outputs / kPanelColumns, groups = dense_groups(panels);
  int64_t begin = task / groups * kDenseRows, end = begin + kDenseRows;
  if (end > a->rows) end = a->rows;
  int64_t first = task % groups * kDensePanels, last = first + kDensePanels;
  if (last > panels) last = panels;
  // Terms whose part of the panels and of the rows stays next to the core.
  for (int64_t k = 0; k < a->inputs; k += kDenseTerms) {
    int64_t until = a->inputs - k < kDenseTerms ? a->inputs : k + kDenseTerms;
    for (int64_t panel = first, n; panel < last; panel += n) {
      n = last - panel < kTilePanels ? 1 : kTilePanels;
      for (int64_t row = begin; row < end; row += kTileRows) {
        int rows = (int)(end - row < kTileRows ? end - row : kTileRows);
        NAME(dense_strip)(a, row, rows, panel, (int)n, k, until);
      }
    }
  }
}

#undef kTileRows
#undef kTilePanels
