#include <stdlib.h>

void *inner(size_t size) { return malloc(size); }
