#include <stdlib.h>

// Each function is called for the first time at another moment, so that each slot is bound at another one.
void *first(size_t size) { return malloc(size); }
void *second(size_t count, size_t size) { return calloc(count, size); }
void *third(void *block, size_t size) { return realloc(block, size); }
void last(void *block) { free(block); }
