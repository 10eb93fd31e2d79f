#include <stdlib.h>

void *inner(size_t);
void *outer(size_t size) { return inner(size); }
