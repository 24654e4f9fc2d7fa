// Vectors of W floats and what is computed with them. This file is included once per instruction set,
// with W and NAME defined. NAME adds the instruction set to all names. novectors.h ends it.

typedef float NAME(vf) __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef int32_t NAME(vi) __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef uint32_t NAME(vu) __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef uint16_t NAME(vh) __attribute__((vector_size(W * 2), aligned(2), may_alias));
typedef uint64_t NAME(vw) __attribute__((vector_size(W * 4), aligned(8), may_alias));

#define vf NAME(vf)
#define vi NAME(vi)
#define vu NAME(vu)
#define vh NAME(vh)
#define vw NAME(vw)
#define INLINE static inline __attribute__((always_inline))
#define LOAD(p) (*(const vf*)(p))
#define STORE(p, v) (*(vf*)(p) = (v))

// A sum of zeros and x would be an instruction more.
INLINE vf NAME(set)(float x) {
#if W == 16
  return (vf){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
#elif W == 8
  return (vf){x, x, x, x, x, x, x, x};
#else
  return (vf){x, x, x, x};
#endif
}

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
