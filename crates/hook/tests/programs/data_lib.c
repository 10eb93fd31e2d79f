#include <stdlib.h>

// As libxml2 has them: pointers in data that a program may set to functions of its own.
void *(*lib_malloc)(size_t) = malloc;
void (*lib_free)(void *) = free;
void *(*lib_realloc)(void *, size_t) = realloc;
void *(*lib_calloc)(size_t, size_t) = calloc;
