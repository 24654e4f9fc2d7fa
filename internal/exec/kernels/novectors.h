// The end of vectors.h.

#undef vf
#undef vi
#undef vu
#undef vh
#undef vw
#undef INLINE
#undef LOAD
#undef STORE
