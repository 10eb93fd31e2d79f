#include <stdlib.h>

// Compared with the program's own &malloc: the two must be one function.
void *(*address_in_library(void))(size_t) { return malloc; }
void *through_slot(size_t size) { return malloc(size); }
