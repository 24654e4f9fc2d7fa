// The end of vectors.h.

#undef vf
#undef vi
#undef vw
#undef INLINE
#undef LOAD
#undef STORE
