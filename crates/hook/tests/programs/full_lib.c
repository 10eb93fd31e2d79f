#include <stdlib.h>

void *allocate(size_t size) { return malloc(size); }

// Many slots, so that relocating takes a while and is often met half done.
#define ONE(n) (void *)malloc,
#define TEN(n) ONE(n) ONE(n) ONE(n) ONE(n) ONE(n) ONE(n) ONE(n) ONE(n) ONE(n) ONE(n)
#define HUNDRED(n) TEN(n) TEN(n) TEN(n) TEN(n) TEN(n) TEN(n) TEN(n) TEN(n) TEN(n) TEN(n)
void *const pointers[] = {HUNDRED(1) HUNDRED(2) HUNDRED(3) HUNDRED(4) HUNDRED(5) HUNDRED(6) HUNDRED(7) HUNDRED(8)};
